#pragma once

#include <set>
#include <vector>

#include "driver/step.h"

namespace lockstep::driver {

/// Ranks that are asked at a failure say at once that nothing is left to write.
inline void settle_all(RunState& state, Instant time, std::vector<Action>& actions) {
  for (const int rank : std::set<int>(state.saving.unsettled)) {
    const Settled settled{state.attempt, rank};
    auto [next, more] = step(std::move(state), settled, time);
    state = std::move(next);
    actions.insert(actions.end(), more.begin(), more.end());
  }
}

}  // namespace lockstep::driver
