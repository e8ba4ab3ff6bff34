#pragma once

#include <cstdint>
#include <lockstep/torch/order.h>

namespace lockstep::torch::detail {

/// What enable_reproducibility() was given, or 0.
std::uint64_t reproducible_seed();
/// This process's place among all.
Team this_worker();

}  // namespace lockstep::torch::detail
