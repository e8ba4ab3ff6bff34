#include <lockstep/error.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/reproducibility.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "torch/seed.h"

namespace lockstep::torch {
namespace {

std::atomic<std::uint64_t> given_seed = 0;

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
  const ::torch::Tensor state = generator.get_state();
  const auto* bytes = state.const_data_ptr<std::uint8_t>();
  return Value::binary({bytes, bytes + state.numel()});
}

void set_rng_state(const Value& state) {
  if (!state.is_binary()) throw ConfigError("[set_rng_state] the state is not bytes; pass the result of rng_state()");
  const auto& bytes = state.get_binary();
  ::torch::Tensor tensor = ::torch::empty({static_cast<std::int64_t>(bytes.size())}, ::torch::kUInt8);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(tensor);
  } catch (const c10::Error& error) {
    throw ConfigError(std::string("[set_rng_state] this is not a state of the generator: ") +
                      error.what_without_backtrace());
  }
}

}  // namespace lockstep::torch
