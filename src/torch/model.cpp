#include <lockstep/torch/collectives.h>
#include <lockstep/torch/model.h>
#include <lockstep/trainer.h>

#include <algorithm>
#include <atomic>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "torch/group.h"

namespace lockstep::torch {
namespace {

using ::torch::Tensor;

constexpr std::size_t kBroadcastBytes = 250 << 20;
constexpr const char* kUnusedOption = "find_unused_parameters";

/// Parameters with sparse gradients: tables of embeddings that request them.
std::unordered_set<const void*> sparse_parameters(const ::torch::nn::Module& module) {
  std::unordered_set<const void*> found;
  for (const auto& part : module.modules()) {
    if (const auto* table = dynamic_cast<const ::torch::nn::EmbeddingImpl*>(part.get());
        table != nullptr && table->options.sparse())
      found.insert(table->weight.unsafeGetTensorImpl());
    if (const auto* bag = dynamic_cast<const ::torch::nn::EmbeddingBagImpl*>(part.get());
        bag != nullptr && bag->options.sparse())
      found.insert(bag->weight.unsafeGetTensorImpl());
  }
  return found;
}

std::vector<Tensor> defined(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> found;
  for (const auto& tensor : tensors)
    if (tensor.defined()) found.push_back(tensor.detach());
  return found;
}

ModelOptions checked(ModelOptions options) {
  if (options.bucket_cap_mb) options.bucket_bytes = static_cast<std::int64_t>(*options.bucket_cap_mb * (1 << 20));
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1)
    throw ConfigError("[prepare_model] bucket_bytes is " + std::to_string(options.bucket_bytes) +
                      " and first_bucket_bytes " + std::to_string(options.first_bucket_bytes) +
                      "; both must be 1 or more");
  return options;
}

/// What must be equal on every rank, including which parameters are shared.
Value outline(const std::vector<Tensor>& tensors) {
  Value lines = Value::array();
  std::unordered_map<const void*, std::size_t> seen;
  for (const auto& tensor : tensors) {
    if (!tensor.defined()) continue;
    const auto [first, is_new] = seen.emplace(tensor.unsafeGetTensorImpl(), lines.size());
    lines.push_back(c10::str(tensor.scalar_type(), " ", tensor.sizes(), " with strides ", tensor.strides(),
                             tensor.requires_grad() ? ", trained" : "",
                             is_new ? "" : ", the same as " + std::to_string(first->second)));
  }
  return lines;
}

/// Throws the same ConfigError on every rank if the models differ, so that no rank continues alone.
void check_equal(const ::torch::nn::Module& module) {
  auto tensors = module.parameters();
  const auto buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  const auto models = all_gather(outline(tensors));
  const auto other = std::ranges::find_if(models, [&](const Value& model) { return model != models[0]; });
  if (other == models.end()) return;
  const auto line = [](const Value& model, std::size_t i) {
    return i < model.size() ? model.at(i).get<std::string>() : std::string("nothing");
  };
  std::size_t i = 0;
  while (line(models[0], i) == line(*other, i)) ++i;
  throw ConfigError("[prepare_model] the ranks have models with different parameters; build the same one everywhere: " +
                    std::to_string(i) + " of rank 0 is " + line(models[0], i) + ", and of rank " +
                    std::to_string(other - models.begin()) + " it is " + line(*other, i));
}

/// If parameters got no gradient in the last pass, LibTorch's error explains how to allow that in Python; this adds
/// C++.
template <class Body>
void advised(const Body& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    if (std::string_view(error.what()).find(kUnusedOption) == std::string_view::npos) throw;
    throw ConfigError(
        std::string(
            "[prepare_model] some parameters got no gradient in the last backward pass; if that is meant, write "
            "prepare_model(model, {.") +
        kUnusedOption + " = true}). LibTorch says: " + error.what_without_backtrace());
  }
}

/// A part of a bucket is a view, which Optimizer::zero_grad() cannot detach. A separate tensor on the same memory can
/// be detached.
void unview(const std::vector<Tensor>& parameters) {
  for (const auto& parameter : parameters)
    if (Tensor& gradient = parameter.mutable_grad(); gradient.defined() && gradient.is_view())
      gradient = gradient.detach();
}

}  // namespace

/// The reducer and its hooks.
struct PreparedModule::Replica {
  /// State shared with the hooks of the parameters.
  struct Hooks {
    std::vector<Tensor> parameters;
    std::atomic<bool> queued = false;
  };

  Replica(::torch::nn::Module& module, const ModelOptions& given, Group ranks)
      : options(given), group(std::move(ranks)), hooks(std::make_shared<Hooks>()) {
    check_equal(module);
    const auto sparse = sparse_parameters(module);
    std::unordered_map<std::size_t, std::string> names;
    std::vector<bool> is_sparse;
    std::unordered_set<const void*> seen;  // tied parameters have several names
    for (const auto& item : module.named_parameters()) {
      if (!item.value().requires_grad() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      names.emplace(hooks->parameters.size(), item.key());
      is_sparse.push_back(sparse.contains(item.value().unsafeGetTensorImpl()));
      hooks->parameters.push_back(item.value());
    }
    buffers = defined(module.buffers());
    std::vector<Tensor> start = defined(module.parameters());
    start.insert(start.end(), buffers.begin(), buffers.end());
    if (!start.empty()) c10d::broadcast_coalesced(group, start, kBroadcastBytes, 0);
    if (hooks->parameters.empty()) return;

    const auto first = static_cast<std::size_t>(options.first_bucket_bytes);
    const auto rest = static_cast<std::size_t>(options.bucket_bytes);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(hooks->parameters, {first, rest}, is_sparse));
    std::reverse(buckets.begin(), buckets.end());  // roughly the order in which gradients become ready
    reducer = std::make_shared<c10d::Reducer>(
        hooks->parameters, std::move(buckets), group, is_sparse, options.bucket_bytes, options.find_unused_parameters,
        options.gradients_in_buckets, names, options.first_bucket_bytes,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<std::int64_t>{});
    // It logs nothing, but the reducer reports unused parameters to it without checking that it exists.
    logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    if (options.gradients_in_buckets) add_hooks();
  }

  /// The first gradient of a backward pass requests a callback at its end. That callback runs before the reducer's,
  /// which is requested later, so it requests another one.
  void add_hooks() {
    for (const auto& parameter : hooks->parameters) {
      accumulators.push_back(::torch::autograd::impl::grad_accumulator(parameter));
      accumulators.back()->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
          [shared = std::weak_ptr(hooks)](const std::vector<Tensor>& outputs, const std::vector<Tensor>&) {
            if (const auto mine = shared.lock(); mine && !mine->queued.exchange(true)) {
              auto& engine = ::torch::autograd::Engine::get_default_engine();
              engine.queue_callback([mine, &engine] {
                engine.queue_callback([mine] {
                  mine->queued = false;
                  unview(mine->parameters);
                });
              });
            }
            return outputs;
          }));
    }
  }

  const ModelOptions options;
  const Group group;
  const std::shared_ptr<Hooks> hooks;
  std::vector<Tensor> buffers;
  bool buffers_stale = false;  ///< a training pass may have changed them since the last broadcast
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::vector<decltype(::torch::autograd::impl::grad_accumulator(std::declval<const Tensor&>()))> accumulators;
};

PreparedModule::PreparedModule(std::shared_ptr<::torch::nn::Module> module, const ModelOptions& options)
    : wrapped_(std::move(module)) {
  if (!wrapped_) throw ConfigError("[prepare_model] the model is empty (nullptr)");
  const ModelOptions wanted = checked(options);
  if (const Session* session = lockstep::detail::running_session();
      current_session() == nullptr && session != nullptr && session->world_size() > 1)
    throw ConfigError("[prepare_model] this trainer does not join its " + std::to_string(session->world_size()) +
                      " workers, so that each would train a model of its own; run the function with TorchTrainer");
  wrapped_->to(wanted.device.value_or(device()));
  register_module("module", wrapped_);
  if (world_size() > 1) replica_ = std::make_unique<Replica>(*wrapped_, wanted, group());
}

PreparedModule::~PreparedModule() = default;

void PreparedModule::before_forward() {
  if (!replica_ || !sync_ || !::torch::GradMode::is_enabled()) return;
  Replica& replica = *replica_;
  replica.hooks->queued = false;
  if (replica.reducer) {
    replica.reducer->prepare_for_forward();
    advised([&] { replica.reducer->rebuild_buckets(); });
  }
  if (replica.options.broadcast_buffers && replica.buffers_stale && is_training() && !replica.buffers.empty()) {
    const ::torch::NoGradGuard no_grad;
    c10d::broadcast_coalesced(replica.group, replica.buffers, kBroadcastBytes, 0);
    replica.buffers_stale = false;
  }
}

bool PreparedModule::wants_outputs() const {
  return replica_ && replica_->reducer && sync_ && replica_->options.find_unused_parameters &&
         ::torch::GradMode::is_enabled();
}

void PreparedModule::after_forward(const std::vector<Tensor>& outputs) {
  if (!replica_ || !::torch::GradMode::is_enabled()) return;
  if (is_training()) replica_->buffers_stale = true;
  if (sync_ && replica_->reducer) advised([&] { replica_->reducer->prepare_for_backward(outputs); });
}

NoSync::NoSync(PreparedModule& model) : model_(model), before_(std::exchange(model.sync_, false)) {}

NoSync::~NoSync() { model_.sync_ = before_; }

}  // namespace lockstep::torch
