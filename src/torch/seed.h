#pragma once

#include <cstdint>
#include <lockstep/torch/order.h>

namespace lockstep::torch::detail {

/// The seed of enable_reproducibility(), or 0.
std::uint64_t reproducible_seed();
/// This process's rank.
Team this_worker();

}  // namespace lockstep::torch::detail
