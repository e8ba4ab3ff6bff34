#pragma once

#include <torch/torch.h>

#include <lockstep/value.h>
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
  /// Divides the gradients by the scale; for clipping between backward() and step(). Once a step: throws ConfigError.
  void unscale(::torch::optim::Optimizer& optimizer);
  /// Steps, unless a gradient is infinite or NaN. Returns whether it did. Divides the gradients if that was not done.
  bool step(::torch::optim::Optimizer& optimizer);
  /// At the end of each step: a smaller scale after an overflow, a larger one after growth_interval steps without.
  void update();

  double get_scale() const;
  /// The scale and what belongs to it, for the `extra` of a checkpoint; the same keys as Python's.
  Value state() const;
  void load_state(const Value& state);

 private:
  GradScalerOptions options_;
  double scale_;
  std::int64_t growth_tracker_ = 0;
  bool found_infinite_ = false;
  std::vector<const ::torch::optim::Optimizer*> unscaled_;
};

}  // namespace lockstep::torch
