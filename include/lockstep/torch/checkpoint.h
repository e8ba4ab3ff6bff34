#pragma once

#include <torch/torch.h>

#include <lockstep/checkpoint.h>
#include <lockstep/value.h>

namespace lockstep::torch {

/// A checkpoint of a module, its optimizer, and plain values: the dict
///
///     {EXTRA..., "model": {NAME: tensor, ...}, "optimizer": {"state": {NAME: {...}}, "param_groups": [...]}}
///
/// whose tensors stand by parameter name in tensors.safetensors (model.NAME, optimizer.state.NAME.exp_avg, ...). Python
/// reads it: checkpoint.to_dict() gives the dict, `model.load_state_dict(d["model"])` and
/// `optimizer.load_state_dict(d["optimizer"])` take its parts. A prepared model is stored as the user's own module.
/// A parameter that stands under several names is stored once. Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad.
///
/// The contents are copied before it returns. Throws ConfigError for another optimizer, for a parameter of the
/// optimizer that the module does not have, and when `extra` has the keys "model" or "optimizer".
Checkpoint checkpoint(const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                      const Value& extra = Value::object());
Checkpoint checkpoint(const ::torch::nn::Module& module, const Value& extra = Value::object());

/// Puts what a checkpoint holds into a module and an optimizer of the same kind, and returns the rest of its dict.
///
///     int64_t next = lockstep::torch::load(*checkpoint, *model, optimizer)["epoch"].get<int64_t>() + 1;
///
/// Values are copied into the parameters and buffers that are there, by name. Reads what checkpoint() wrote, and what
/// Python saved as {"model": model.state_dict(), "optimizer": optimizer.state_dict()}; Python's optimizers number their
/// parameters unless they were given names, so that the optimizers must then have them in the same order. Every rank
/// loads for itself. Throws ConfigError, before anything is changed, that names what is missing, left over, or of
/// another shape; StorageError when the checkpoint cannot be read.
Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer);
/// Without the optimizer, whose state may be there.
Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module);

}  // namespace lockstep::torch
