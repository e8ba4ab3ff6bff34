#include <ATen/autocast_mode.h>
#include <lockstep/error.h>
#include <lockstep/torch/amp.h>
#include <lockstep/torch/collectives.h>

#include <algorithm>
#include <utility>

namespace lockstep::torch {
namespace {

using ::torch::Tensor;

}  // namespace

Autocast::Autocast(std::optional<::torch::Dtype> dtype, std::optional<::torch::DeviceType> given, bool enabled)
    : device_(given.value_or(device().type())),
      dtype_before_(at::autocast::get_autocast_dtype(device_)),
      enabled_before_(at::autocast::is_autocast_enabled(device_)) {
  at::autocast::set_autocast_dtype(device_,
                                   dtype.value_or(device_ == ::torch::kCPU ? ::torch::kBFloat16 : ::torch::kFloat16));
  at::autocast::set_autocast_enabled(device_, enabled);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), scale_(options.init_scale) {
  if (!(options.init_scale > 0) || !(options.growth_factor > 1) || !(options.backoff_factor > 0) ||
      !(options.backoff_factor < 1) || options.growth_interval < 1)
    throw ConfigError(
        "[GradScaler] init_scale must be more than 0, growth_factor more than 1, backoff_factor between 0 and 1, and "
        "growth_interval 1 or more");
}

Tensor GradScaler::scale(const Tensor& loss) const { return options_.enabled ? loss * scale_ : loss; }

void GradScaler::unscale(::torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  Progress& progress = progress_[&optimizer];
  if (progress.unscaled)
    throw ConfigError(
        "[GradScaler] unscale() was called twice for one optimizer, or after its step(); call update() at the end of "
        "each step");
  progress.unscaled = true;
  const ::torch::NoGradGuard no_grad;
  std::map<std::pair<::torch::ScalarType, std::string>, std::vector<Tensor>> by_kind;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params())
      if (Tensor gradient = parameter.grad(); gradient.defined()) {
        if (gradient.is_sparse()) {
          parameter.mutable_grad() = gradient.coalesce();  // a copy, unless it already is coalesced
          gradient = parameter.grad()._values();
        }
        by_kind[{gradient.scalar_type(), gradient.device().str()}].push_back(gradient);
      }
  for (auto& [kind, gradients] : by_kind) {
    const auto place = gradients.front().options().dtype(::torch::kFloat32);
    Tensor found = ::torch::zeros({1}, place);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, ::torch::full({1}, 1 / scale_, place));
    progress.infinite = progress.infinite || found.item<float>() != 0;
  }
}

bool GradScaler::step(::torch::optim::Optimizer& optimizer) {
  if (options_.enabled) {
    if (!progress_[&optimizer].unscaled) unscale(optimizer);
    Progress& progress = progress_[&optimizer];
    if (std::exchange(progress.stepped, true))
      throw ConfigError(
          "[GradScaler] step() was called twice for one optimizer; call update() at the end of each step");
    if (progress.infinite) return false;
  }
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  const bool infinite =
      std::any_of(progress_.begin(), progress_.end(), [](const auto& each) { return each.second.infinite; });
  if (infinite) {
    scale_ *= options_.backoff_factor;
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    growth_tracker_ = 0;
  }
  progress_.clear();
}

double GradScaler::get_scale() const { return options_.enabled ? scale_ : 1; }

Value GradScaler::state() const {
  return {{"scale", scale_},
          {"growth_factor", options_.growth_factor},
          {"backoff_factor", options_.backoff_factor},
          {"growth_interval", options_.growth_interval},
          {"_growth_tracker", growth_tracker_}};
}

void GradScaler::load_state(const Value& state) {
  if (!state.is_object() || !state.contains("scale"))
    throw ConfigError("[GradScaler] load_state() got " + state.dump().substr(0, 100) + "; give it what state() gave");
  scale_ = state["scale"].get<double>();
  options_.growth_factor = state.value("growth_factor", options_.growth_factor);
  options_.backoff_factor = state.value("backoff_factor", options_.backoff_factor);
  options_.growth_interval = state.value("growth_interval", options_.growth_interval);
  growth_tracker_ = state.value("_growth_tracker", std::int64_t{0});
}

}  // namespace lockstep::torch
