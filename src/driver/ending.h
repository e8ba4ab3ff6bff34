#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/clock.h"

namespace lockstep::driver {

/// A run that ends early, after the same report on every rank. Kept from attempt to attempt, except for the ranks'
/// answers.
struct Ending {
  bool wanted = false;
  std::map<int, int> held;                ///< by rank: the smallest number of reports after which it can end
  std::optional<int> after;               ///< the chosen number of reports
  Instant laggards_end = Instant::max();  ///< when ranks that report less often than the others are interrupted
  bool laggards_told = false;

  void begin_attempt() {
    const bool still_wanted = wanted;
    *this = {};
    wanted = still_wanted;
  }
};

/// A failed attempt that waits for checkpoints that are still being written.
struct Saving {
  std::set<int> unsettled;  ///< ranks that may still write a checkpoint that counts
  Instant since{};
};

}  // namespace lockstep::driver
