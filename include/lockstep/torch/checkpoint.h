#pragma once

#include <torch/torch.h>

#include <lockstep/checkpoint.h>
#include <lockstep/torch/tensor_value.h>
#include <lockstep/value.h>
#include <optional>
#include <string>

namespace lockstep::torch {

/// A checkpoint of a module, its optimizer, and plain values: the dict
///
///     {EXTRA..., "model": {NAME: tensor, ...}, "optimizer": {"state": {NAME: {...}}, "param_groups": [...]}}
///
/// whose tensors are stored by parameter name in tensors.safetensors (model.NAME, optimizer.state.NAME.exp_avg, ...).
/// Python reads it: checkpoint.to_dict() returns the dict, and `model.load_state_dict(d["model"])` and
/// `optimizer.load_state_dict(d["optimizer"])` accept its parts. A prepared model is stored as the user's own module. A
/// parameter with several names is stored once. Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad. LBFGS is refused: store
/// the module alone, and LBFGS starts again with an empty history.
///
/// The contents are copied before it returns. Throws ConfigError for another optimizer, for a parameter of the
/// optimizer that the module does not have, and if `extra` has the keys "model" or "optimizer".
Checkpoint checkpoint(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                      const Value& extra = Value::object());
Checkpoint checkpoint(const ::torch::nn::Module& module, const Value& extra = Value::object());

/// The keys under which load() looks in a checkpoint's dict. Nothing: those of checkpoint(), or else those common in
/// Python programs: "model_state_dict" or "state_dict", and "optimizer_state_dict".
struct CheckpointKeys {
  std::optional<std::string> model{};
  std::optional<std::string> optimizer{};
};

/// Loads a checkpoint into a module and an optimizer of the same kind, and returns the rest of its dict.
///
///     int64_t next = lockstep::torch::load(*checkpoint, *model, optimizer)["epoch"].get<int64_t>() + 1;
///
/// Values are copied into the existing parameters and buffers, by name. Reads what checkpoint() wrote, and what Python
/// saved as {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, or under other keys. Python's
/// optimizers number their parameters unless they were given names; then both optimizers must have them in the same
/// order. Every rank loads by itself. Throws ConfigError, before anything is changed, that names what is missing, left
/// over, or of another shape, and StorageError if the checkpoint cannot be read. The return value is const, so that
/// reading a missing key is a ConfigError; keep it as `const auto`.
const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer,
                 const CheckpointKeys& keys = {});
/// Without an optimizer; the checkpoint may have the state of one.
const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, const CheckpointKeys& keys = {});

/// A tensor (or numpy array) that Python stored beside the model: load() and to_dict() return an entry that refers to
/// it.
///
///     auto mean = lockstep::torch::get_tensor(*checkpoint, load(*checkpoint, *model)["mean"]);
///
/// It is on the CPU and has its own memory. Throws ConfigError if `entry` is not such an entry, or has a type that C++
/// lacks, and StorageError if the checkpoint has no such array.
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
