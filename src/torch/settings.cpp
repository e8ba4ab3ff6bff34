#include <ATen/autocast_mode.h>
#include <lockstep/error.h>
#include <lockstep/torch/amp.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/profiler.h>
#include <lockstep/torch/reproducibility.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "torch/group.h"
#include "torch/seed.h"

namespace lockstep::torch {
namespace {

using ::torch::Tensor;
namespace fs = std::filesystem;
namespace kineto = ::torch::autograd::profiler;
namespace profiling = ::torch::profiler::impl;

std::atomic<std::uint64_t> given_seed = 0;
/// Whether there is a Profile that records.
std::atomic<bool> recording = false;

/// A number that no earlier trace of the rank has; ranks that do the same thing get the same numbers.
fs::path free_path(const fs::path& directory) {
  for (int number = 0;; ++number) {
    const fs::path path =
        directory / ("rank_" + std::to_string(rank()) + "." + std::to_string(number) + ".pt.trace.json");
    if (!fs::exists(path)) return path;
  }
}

/// Workers must not write over each other's.
fs::path of_this_rank(const fs::path& file) {
  if (world_size() == 1) return file;
  return file.parent_path() / (file.stem().string() + ".rank_" + std::to_string(rank()) + file.extension().string());
}

fs::path trace_directory(const ProfileOptions& options) {
  if (!options.directory.empty()) return options.directory;
  const Session* session = current_session();
  return (session != nullptr ? fs::path(session->trial_dir()) : fs::current_path()) / "pytorch_profiler";
}

std::set<profiling::ActivityType> activities() {
  std::set<profiling::ActivityType> found{profiling::ActivityType::CPU};
  if (::torch::cuda::is_available()) found.insert(profiling::ActivityType::CUDA);
  return found;
}

}  // namespace

std::uint64_t detail::reproducible_seed() { return given_seed; }

detail::Team detail::this_worker() { return {rank(), world_size()}; }

void enable_reproducibility(std::uint64_t seed) {
  given_seed = seed;
  ::torch::manual_seed(seed);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // cuBLAS is deterministic only with a fixed workspace
}

Value rng_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const Tensor state = generator.get_state();
  const auto* bytes = state.const_data_ptr<std::uint8_t>();
  return Value::binary({bytes, bytes + state.numel()});
}

void set_rng_state(const Value& state) {
  if (!state.is_binary()) throw ConfigError("[set_rng_state] the state is no bytes; give it what rng_state() gave");
  const auto& bytes = state.get_binary();
  Tensor tensor = ::torch::empty({static_cast<std::int64_t>(bytes.size())}, ::torch::kUInt8);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(tensor);
  } catch (const c10::Error& error) {
    throw ConfigError(std::string("[set_rng_state] this is no state of the generator: ") +
                      error.what_without_backtrace());
  }
}

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
          parameter.mutable_grad() = gradient.coalesce();  // a copy, unless it was that already
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

Profile::Profile(const ProfileOptions& options) {
  if (options.only_rank_zero && rank() != 0) return;
  const bool to_file = !options.file.empty();
  const fs::path directory = to_file ? fs::absolute(options.file).parent_path() : trace_directory(options);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw StorageError("[profile] cannot make " + directory.string() + ": " + error.message());
  if (recording.exchange(true))
    throw ConfigError("[profile] this process records a trace already; end it (stop()) before the next one begins");
  path_ = to_file ? of_this_rank(fs::absolute(options.file)) : free_path(directory);
  // Without a GPU its library has nothing to say but that it begins and ends, on stderr.
  if (!::torch::cuda::is_available()) ::setenv("KINETO_LOG_LEVEL", "99", 0);
  const profiling::ProfilerConfig config(profiling::ProfilerState::KINETO, options.record_shapes,
                                         options.profile_memory);
  try {
    kineto::prepareProfiler(config, activities());
    kineto::enableProfiler(config, activities());
  } catch (...) {
    recording = false;
    throw;
  }
  running_ = true;
}

Profile::~Profile() {
  try {
    stop();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
}

void Profile::stop() {
  if (!std::exchange(running_, false)) return;
  recording = false;
  const auto trace = kineto::disableProfiler();
  if (!trace)
    throw StorageError("[profile] something else ended the recording; " + path_.string() + " was not written");
  trace->save(path_.string());
  std::error_code error;
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write, error);
  if (error) throw StorageError("[profile] the trace was not written to " + path_.string() + ": " + error.message());
}

}  // namespace lockstep::torch
