#pragma once

#include <cstdint>
#include <lockstep/value.h>

namespace lockstep::torch {

/// Makes runs with the same number of workers give the same numbers. Call it at the start of the training function, on
/// every rank. It seeds LibTorch's generators (with the same seed on every rank) and the order of data loaders that are
/// prepared later, and makes LibTorch refuse operations that have no deterministic implementation.
void enable_reproducibility(std::uint64_t seed = 0);

/// The state of the CPU's random generator as a plain value, for the `extra` of a checkpoint. With it a function that
/// draws random numbers (dropout) repeats them exactly after a restart. The bytes are those of torch.get_rng_state().
Value rng_state();
/// Throws ConfigError if `state` is not such a value.
void set_rng_state(const Value& state);

}  // namespace lockstep::torch
