#pragma once

#include <torch/torch.h>

#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <optional>
#include <string>

namespace lockstep::torch {

/// A checkpoint of a module, its optimizer, and plain values: the dict
///
///     {EXTRA..., "model": {NAME: tensor, ...}, "optimizer": {"state": {NAME: {...}}, "param_groups": [...]}}
///
/// whose tensors stand by parameter name in tensors.safetensors (model.NAME, optimizer.state.NAME.exp_avg, ...). Python
/// reads it: checkpoint.to_dict() gives the dict, `model.load_state_dict(d["model"])` and
/// `optimizer.load_state_dict(d["optimizer"])` take its parts. A prepared model is stored as the user's own module.
/// A parameter that stands under several names is stored once. Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad. LBFGS is
/// refused: store the module alone, and LBFGS begins anew with an empty history.
///
/// The contents are copied before it returns. Throws ConfigError for another optimizer, for a parameter of the
/// optimizer that the module does not have, and when `extra` has the keys "model" or "optimizer".
Checkpoint checkpoint(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                      const Value& extra = Value::object());
Checkpoint checkpoint(const ::torch::nn::Module& module, const Value& extra = Value::object());

/// Where load() finds its parts in a checkpoint's dict. Nothing: where checkpoint() puts them, else where Python
/// programs are used to: "model_state_dict" or "state_dict", and "optimizer_state_dict".
struct CheckpointKeys {
  std::optional<std::string> model{};
  std::optional<std::string> optimizer{};
};

/// Puts what a checkpoint holds into a module and an optimizer of the same kind, and returns the rest of its dict.
///
///     int64_t next = lockstep::torch::load(*checkpoint, *model, optimizer)["epoch"].get<int64_t>() + 1;
///
/// Values are copied into the parameters and buffers that are there, by name. Reads what checkpoint() wrote, and what
/// Python saved as {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, or under other keys; Python's
/// optimizers number their parameters unless they were given names, so that the optimizers must then have them in the
/// same order. Every rank loads for itself. Throws ConfigError, before anything is changed, that names what is missing,
/// left over, or of another shape; StorageError when the checkpoint cannot be read. What it returns is const, so that
/// reading a key that is not there is a ConfigError too; keep it as `const auto`.
const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer,
                 const CheckpointKeys& keys = {});
/// Without the optimizer, whose state may be there.
const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, const CheckpointKeys& keys = {});

/// A tensor (or numpy array) that Python put beside the model: load() and to_dict() give an entry that stands for it.
///
///     auto mean = lockstep::torch::get_tensor(*checkpoint, load(*checkpoint, *model)["mean"]);
///
/// On the CPU, with memory of its own. Throws ConfigError when `entry` is no such entry, or of a type that C++ lacks;
/// StorageError when the checkpoint has no such array.
::torch::Tensor get_tensor(const Checkpoint& checkpoint, const Value& entry);

namespace detail {
template <class Holder>
concept HoldsModule = requires(Holder& holder) {
  static_cast<const ::torch::nn::Module&>(*holder);
};
}  // namespace detail

/// The same for a module holder or a pointer: `checkpoint(model, optimizer)`.
template <detail::HoldsModule Holder>
Checkpoint checkpoint(const Holder& model, const ::torch::optim::Optimizer& optimizer,
                      const Value& extra = Value::object()) {
  return checkpoint(static_cast<const ::torch::nn::Module&>(*model), optimizer, extra);
}
template <detail::HoldsModule Holder>
Checkpoint checkpoint(const Holder& model, const Value& extra = Value::object()) {
  return checkpoint(static_cast<const ::torch::nn::Module&>(*model), extra);
}
template <detail::HoldsModule Holder>
const Value load(const Checkpoint& checkpoint, Holder& model, ::torch::optim::Optimizer& optimizer,
                 const CheckpointKeys& keys = {}) {
  return load(checkpoint, static_cast<::torch::nn::Module&>(*model), optimizer, keys);
}
template <detail::HoldsModule Holder>
const Value load(const Checkpoint& checkpoint, Holder& model, const CheckpointKeys& keys = {}) {
  return load(checkpoint, static_cast<::torch::nn::Module&>(*model), keys);
}

}  // namespace lockstep::torch
