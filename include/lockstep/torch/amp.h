#pragma once

#include <torch/torch.h>

#include <lockstep/value.h>
#include <map>
#include <memory>
#include <optional>

namespace lockstep::torch {

/// While it exists, operations of this thread use fewer bits where that is safe: bfloat16 on the CPU, float16 on a GPU,
/// unless another type is given. Wrap the forward pass and the loss, not backward().
///
///     {
///       lockstep::torch::Autocast autocast;
///       loss = torch::nll_loss(model->forward(x), y);
///     }
///     loss.backward();
class Autocast {
 public:
  /// For device() by default. `enabled` = false switches off a surrounding Autocast.
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
  bool enabled = true;                  ///< false: all functions behave as with a scale of 1
};

/// Keeps small float16 gradients from becoming zero: multiplies the loss by a scale, divides the gradients by it, skips
/// steps in which a gradient overflowed, and adapts the scale. bfloat16 does not need it. Gradients of a prepared model
/// are averaged before they are checked, so all ranks skip the same steps.
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);
///     scaler.update();
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale.
  ::torch::Tensor scale(const ::torch::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale; for clipping between backward() and step(). Throws ConfigError if
  /// it was already called since the last update().
  void unscale(::torch::optim::Optimizer& optimizer);
  void unscale_(::torch::optim::Optimizer& optimizer) { unscale(optimizer); }
  /// Divides the gradients if unscale() did not, then steps the optimizer, unless one of its gradients is infinite or
  /// NaN. Returns whether it stepped. Throws ConfigError if it was already called since the last update().
  bool step(::torch::optim::Optimizer& optimizer);
  /// Call it at the end of each step. Lowers the scale after an overflow, raises it after growth_interval steps
  /// without.
  void update();

  double get_scale() const;
  /// The scaler's state, for the `extra` of a checkpoint; the same keys as in Python.
  Value state() const;
  void load_state(const Value& state);
  Value state_dict() const { return state(); }
  void load_state_dict(const Value& state) { load_state(state); }

 private:
  /// Which calls were made for an optimizer since the last update().
  struct Progress {
    bool unscaled = false, stepped = false, infinite = false;
  };

  GradScalerOptions options_;
  double scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const ::torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace lockstep::torch
