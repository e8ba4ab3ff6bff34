#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collective/region.h"

namespace lockstep::collective {

/// The call in which a rank waits, and how long its peers may be silent.
struct Occasion {
  std::string_view what;     ///< "all_reduce"
  std::uint64_t number = 0;  ///< of the call, from 1
  std::chrono::milliseconds timeout{};
  std::chrono::milliseconds grace{};  ///< what a wait takes longer; a peer may itself wait for another node
};

/// Throws ConfigError in a child of fork(), which is not a member of its parent's group and does not see its memory.
void check_member(const Region& region, int me);
/// The group has a fault. Throws EngineError, or TimeoutError if a timeout was reached; names the ranks.
[[noreturn]] void throw_fault(Region& region, int me, const Fault& fault, const Occasion& occasion);
/// Ranks that are needed have left the group. Throws EngineError.
[[noreturn]] void throw_left(Region& region, int me, const std::vector<int>& ranks, const Occasion& occasion);
/// Ranks that are needed were silent for the whole timeout. Sets the fault for all ranks, then throws TimeoutError.
[[noreturn]] void throw_silent(Region& region, int me, const std::vector<int>& ranks, const Occasion& occasion);

}  // namespace lockstep::collective
