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

/// How the copies of a model on the workers are kept equal.
struct ModelOptions {
  bool find_unused_parameters = false;    ///< some outputs do not depend on all parameters; costs time
  bool broadcast_buffers = true;          ///< copy rank 0's buffers (running means, ...) before each training forward
  std::optional<double> bucket_cap_mb{};  ///< bucket_bytes in MiB, under the name of torch's DDP
  std::int64_t bucket_bytes = 25 << 20;   ///< gradients are exchanged in buckets of about this size
  std::int64_t first_bucket_bytes = 1 << 20;  ///< size of the bucket that is ready first
  bool gradients_in_buckets = true;           ///< gradients are stored in the buckets: no copy back
  std::optional<::torch::Device> device{};    ///< nothing: device()
};

class PreparedModule;

/// While it exists, gradients of the model are not exchanged and add up on this worker. The first backward pass whose
/// forward() ran after it exchanges the sum.
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

/// The part of PreparedModel that does not depend on the type of the user's module.
class PreparedModule : public ::torch::nn::Module {
 public:
  PreparedModule(std::shared_ptr<::torch::nn::Module> module, const ModelOptions& options);
  ~PreparedModule() override;

  /// Hold the guard during forward passes whose gradients must not be exchanged.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// The user's module.
  const ::torch::nn::Module& wrapped() const { return *wrapped_; }
  ::torch::nn::Module& wrapped() { return *wrapped_; }

 protected:
  void before_forward();
  /// Whether after_forward() uses the outputs.
  bool wants_outputs() const;
  void after_forward(const std::vector<::torch::Tensor>& outputs);

 private:
  friend class NoSync;
  struct Replica;
  std::shared_ptr<::torch::nn::Module> wrapped_;
  std::unique_ptr<Replica> replica_;  ///< null if there is nothing to exchange
  bool sync_ = true;
};

namespace detail {

template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;

/// Appends the tensors of an output; false if the output's type is not supported.
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
/// The module of a holder (TORCH_MODULE), or the module itself. Null for an empty holder.
template <class M>
auto shared_module(M module) {
  if constexpr (std::is_base_of_v<::torch::nn::Module, M>)
    return std::make_shared<M>(std::move(module));
  else
    return module.is_empty() ? nullptr : module.ptr();
}

}  // namespace detail

/// A model whose copies on all workers stay equal. prepare_model() makes it and returns a holder of it.
///
/// `model->forward(x)`, or `model(x)`, runs the user's forward. The backward pass of its result averages the gradients
/// over all workers, in buckets, while it is still computing the rest. Every rank must make the same calls. For
/// training use `model->forward`, not `model->module().forward`, which exchanges no gradients.
///
/// It is itself a torch::nn::Module, whose only child "module" is the user's: parameters(), train(), eval() and
/// zero_grad() work as usual. Both Optimizer::zero_grad() and Module::zero_grad() work.
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

/// Returned by prepare_model(): a module holder, as made by TORCH_MODULE. Copies refer to the same model.
template <class M>
class PreparedHolder : public ::torch::nn::ModuleHolder<PreparedModel<M>> {
 public:
  using ::torch::nn::ModuleHolder<PreparedModel<M>>::ModuleHolder;
  using Impl = PreparedModel<M>;

  /// As `model->forward(...)`. The base's operator cannot call a forward that is a template.
  template <class... Args>
  auto operator()(Args&&... args) {
    return this->get()->forward(std::forward<Args>(args)...);
  }
};

/// Moves a model to this worker's device and connects it with its copies on the other workers: all start with rank 0's
/// parameters and buffers. `model` is a module holder (TORCH_MODULE, torch::nn::Sequential, ...), a shared_ptr or
/// unique_ptr to a module, or a module. It need not have trainable parameters. With one worker nothing is exchanged;
/// everything else is the same. Every rank must call it. Throws ConfigError if the model is empty, if the number or
/// shape of parameters or buffers differs between ranks, and under a trainer that does not connect its workers
/// (DataParallelTrainer). NCCL exchanges tensors on GPUs; this has not been tested on real GPUs.
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
