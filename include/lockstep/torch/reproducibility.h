#pragma once

#include <cstdint>
#include <lockstep/value.h>

namespace lockstep::torch {

/// Makes two runs with the same workers give the same numbers. Call it at the top of the training function, on every
/// rank: it seeds LibTorch's generators (the same seed on every rank) and the order of data loaders that are prepared
/// after it, and makes LibTorch refuse operations that have no deterministic form.
void enable_reproducibility(std::uint64_t seed = 0);

/// The state of the CPU's random generator as a plain value, for the `extra` of a checkpoint: a function that draws
/// random numbers (dropout) then repeats them exactly after a restart. The bytes are those of torch.get_rng_state().
Value rng_state();
/// Throws ConfigError when `state` is not such a value.
void set_rng_state(const Value& state);

}  // namespace lockstep::torch
