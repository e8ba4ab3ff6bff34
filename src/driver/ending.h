#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/clock.h"

namespace lockstep::driver {

/// A run that ends early, after the same report on every rank. Kept from attempt to attempt; what ranks said is not.
struct Ending {
  bool wanted = false;
  std::map<int, int> held;                ///< by rank: the least number of reports after which it can end
  std::optional<int> after;               ///< chosen: so many reports
  Instant laggards_end = Instant::max();  ///< when ranks that do not report as the others do are interrupted
  bool laggards_told = false;

  void begin_attempt() {
    const bool still_wanted = wanted;
    *this = {};
    wanted = still_wanted;
  }
};

/// A failed attempt whose checkpoints are still being written: its end waits for them.
struct Saving {
  std::set<int> unsettled;  ///< ranks that may still write a checkpoint that counts
  Instant since{};
};

}  // namespace lockstep::driver
