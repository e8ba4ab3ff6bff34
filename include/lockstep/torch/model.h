#pragma once

#include <torch/torch.h>

#include <lockstep/error.h>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::torch {

/// How a model's copies on the workers are kept equal.
struct ModelOptions {
  bool find_unused_parameters = false;        ///< some outputs do not depend on all parameters; costs time
  bool broadcast_buffers = true;              ///< rank 0's buffers (running means, ...) before each training forward
  std::optional<double> bucket_cap_mb{};      ///< bucket_bytes by the name that torch's DDP has for it, in MiB
  std::int64_t bucket_bytes = 25 << 20;       ///< gradients are exchanged in pieces of about this size
  std::int64_t first_bucket_bytes = 1 << 20;  ///< the piece that is ready first
  bool gradients_in_buckets = true;           ///< gradients lie in the memory that is exchanged: no copy back
  std::optional<::torch::Device> device{};    ///< nothing: device()
};

class PreparedModule;

/// While it lives, gradients of the model stay this worker's own and add up; the first backward pass of a forward()
/// after it exchanges the sum.
///
///     {
///       auto guard = model->no_sync();
///       loss_of(model->forward(first)).backward();
///     }
///     loss_of(model->forward(second)).backward();
class NoSync {
 public:
  explicit NoSync(PreparedModule& model);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  PreparedModule& model_;
  bool before_;
};

/// What PreparedModel is without the type of the user's module.
class PreparedModule : public ::torch::nn::Module {
 public:
  PreparedModule(std::shared_ptr<::torch::nn::Module> module, const ModelOptions& options);
  ~PreparedModule() override;

  /// Call it around the forward passes whose gradients shall not be exchanged.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// The user's module.
  const ::torch::nn::Module& wrapped() const { return *wrapped_; }
  ::torch::nn::Module& wrapped() { return *wrapped_; }

 protected:
  void before_forward();
  /// Whether after_forward() looks at the outputs.
  bool wants_outputs() const;
  void after_forward(const std::vector<::torch::Tensor>& outputs);

 private:
  friend class NoSync;
  struct Replica;
  std::shared_ptr<::torch::nn::Module> wrapped_;
  std::unique_ptr<Replica> replica_;  ///< none where there is nothing to exchange
  bool sync_ = true;
};

namespace detail {

template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;

/// Appends the tensors of an output; false when it is of a kind into which it cannot look.
template <class T>
bool add_tensors(const T& output, std::vector<::torch::Tensor>& found) {
  if constexpr (std::is_convertible_v<const T&, const ::torch::Tensor&>) {
    found.push_back(output);
    return true;
  } else if constexpr (is_tuple<T>) {
    return std::apply([&](const auto&... part) { return (add_tensors(part, found) && ...); }, output);
  } else if constexpr (requires { output.begin() != output.end(); }) {
    for (const auto& part : output)
      if (!add_tensors(part, found)) return false;
    return true;
  } else if constexpr (requires {
                         output.has_value();
                         *output;
                       }) {
    return !output.has_value() || add_tensors(*output, found);
  } else {
    return std::is_arithmetic_v<T>;
  }
}

template <class M>
std::shared_ptr<M> shared_module(std::shared_ptr<M> module) {
  return module;
}
template <class M>
std::shared_ptr<M> shared_module(std::unique_ptr<M> module) {
  return module;
}
/// Of a module holder (TORCH_MODULE), or of a module itself. Null for an empty holder.
template <class M>
auto shared_module(M module) {
  if constexpr (std::is_base_of_v<::torch::nn::Module, M>)
    return std::make_shared<M>(std::move(module));
  else
    return module.is_empty() ? nullptr : module.ptr();
}

}  // namespace detail

/// A model whose copies on all workers are one: made by prepare_model(), which hands out a holder of it.
///
/// `model->forward(x)`, or `model(x)`, runs the user's forward; the backward pass of its result averages the gradients
/// over all workers, in buckets, while it is still computing the rest. Every rank makes the same calls. Use
/// `model->forward` and not `model->module().forward` for training: only the former exchanges gradients.
///
/// It is itself a torch::nn::Module, whose one child "module" is the user's: parameters(), train(), eval(), zero_grad()
/// are as on any other. Optimizer::zero_grad() and Module::zero_grad() are both fine.
template <class M>
class PreparedModel : public PreparedModule {
 public:
  PreparedModel(const std::shared_ptr<M>& module, const ModelOptions& options)
      : PreparedModule(module, options), module_(module) {}

  template <class... Args>
  auto forward(Args&&... args) {
    before_forward();
    auto output = module_->forward(std::forward<Args>(args)...);
    std::vector<::torch::Tensor> tensors;
    if (wants_outputs() && !detail::add_tensors(output, tensors))
      throw ConfigError(
          "[prepare_model] with find_unused_parameters forward() must return tensors, or tuples, vectors, maps or "
          "optionals of them; its type is another");
    after_forward(tensors);
    return output;
  }

  /// The user's module.
  M& module() { return *module_; }
  const M& module() const { return *module_; }

 private:
  std::shared_ptr<M> module_;
};

/// What prepare_model() hands out: a module holder as those of TORCH_MODULE. Copies are the same model.
template <class M>
class PreparedHolder : public ::torch::nn::ModuleHolder<PreparedModel<M>> {
 public:
  using ::torch::nn::ModuleHolder<PreparedModel<M>>::ModuleHolder;
  using Impl = PreparedModel<M>;

  /// As `model->forward(...)`. The base's own cannot see a forward that is a template.
  template <class... Args>
  auto operator()(Args&&... args) {
    return this->get()->forward(std::forward<Args>(args)...);
  }
};

/// Moves a model to this worker's device and joins it with its copies on the other workers: all begin with rank 0's
/// parameters and buffers. `model` is a module holder (TORCH_MODULE, torch::nn::Sequential, ...), a shared_ptr or
/// unique_ptr to a module, or a module. It need not have parameters to train. With one worker there is nothing to
/// exchange and everything else is the same. Every rank calls it. Throws ConfigError when the model is empty, when
/// parameters or buffers differ between ranks in number or shape, and in a worker of a trainer that joins none
/// (DataParallelTrainer). Tensors of GPUs are exchanged by NCCL, which has never run on real ones.
///
///     auto model = lockstep::torch::prepare_model(Net(), {.find_unused_parameters = true});
///     torch::optim::SGD optimizer(model->parameters(), 0.1);
template <class M>
auto prepare_model(M model, const ModelOptions& options = {}) {
  auto module = detail::shared_module(std::move(model));
  using Inner = typename decltype(module)::element_type;
  return PreparedHolder<Inner>(std::make_shared<PreparedModel<Inner>>(module, options));
}

}  // namespace lockstep::torch
