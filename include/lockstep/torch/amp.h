#pragma once

#include <torch/torch.h>

#include <lockstep/value.h>
#include <map>
#include <memory>
#include <optional>

namespace lockstep::torch {

/// While it lives, this thread's operations that can run in fewer bits do: bfloat16 on the CPU, float16 on a GPU,
/// unless another type is given. Wrap the forward pass and the loss, not backward().
///
///     {
///       lockstep::torch::Autocast autocast;
///       loss = torch::nll_loss(model->forward(x), y);
///     }
///     loss.backward();
class Autocast {
 public:
  /// On device() unless told otherwise. `enabled` = false switches a surrounding Autocast off.
  explicit Autocast(std::optional<::torch::Dtype> dtype = std::nullopt,
                    std::optional<::torch::DeviceType> device = std::nullopt, bool enabled = true);
  /// The device first, as in Python: `Autocast(torch::kCPU, torch::kBFloat16)`.
  explicit Autocast(::torch::Device device, std::optional<::torch::Dtype> dtype = std::nullopt, bool enabled = true)
      : Autocast(dtype, device.type(), enabled) {}
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  ::torch::DeviceType device_;
  ::torch::Dtype dtype_before_;
  bool enabled_before_;
};

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
  bool enabled = true;                  ///< false: all functions do as if there were no scale
};

/// Keeps small float16 gradients from vanishing: multiplies the loss, divides the gradients again, skips steps in which
/// one overflowed, and adapts the factor. bfloat16 needs none. Gradients of a prepared model are averaged before they
/// are looked at, so that all ranks skip the same steps.
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);
///     scaler.update();
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale.
  ::torch::Tensor scale(const ::torch::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale; for clipping between backward() and step(). Throws ConfigError
  /// when that was done since the last update().
  void unscale(::torch::optim::Optimizer& optimizer);
  void unscale_(::torch::optim::Optimizer& optimizer) { unscale(optimizer); }
  /// Steps, unless one of the optimizer's gradients is infinite or NaN. Returns whether it did. Divides the gradients
  /// if that was not done. Throws ConfigError when it was called since the last update().
  bool step(::torch::optim::Optimizer& optimizer);
  /// At the end of each step: a smaller scale after an overflow, a larger one after growth_interval steps without.
  void update();

  double get_scale() const;
  /// The scale and what belongs to it, for the `extra` of a checkpoint; the same keys as Python's.
  Value state() const;
  void load_state(const Value& state);
  Value state_dict() const { return state(); }
  void load_state_dict(const Value& state) { load_state(state); }

 private:
  /// What was done for an optimizer since the last update().
  struct Progress {
    bool unscaled = false, stepped = false, infinite = false;
  };

  GradScalerOptions options_;
  double scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const ::torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace lockstep::torch
