#pragma once

#include <cstdint>

#include "collective/faults.h"
#include "collective/region.h"

namespace lockstep::collective {

/// How ranks take turns with the staging slots. In every round each rank fills its slot of the round, arrives, waits
/// for the others, and then reads theirs. Who has arrived at the next round has done reading. There are three slots a
/// rank, so the one of the next round may be filled between arriving and waiting.
///
/// One thread at a time.
class Rounds {
 public:
  /// `spin`: wait actively for a while before sleeping; only when every rank has a core of its own.
  Rounds(Region& region, int rank, bool spin) : region_(region), rank_(rank), spin_(spin) {}

  /// The round that this rank arrives at next: its slot may be filled now.
  std::uint32_t next() const { return round_ + 1; }
  /// What was put into the slot of next() is for the others to read.
  void arrive();
  /// Waits until all ranks have arrived where this one has; returns the round, whose slots may be read now. Completes
  /// though ranks have died or left, if they had arrived. Throws as faults.h says.
  std::uint32_t wait(const Occasion& occasion);

 private:
  bool complete() const;
  bool spin_until_complete() const;
  bool in_the_way() const;
  void sleep_until_complete(const Occasion& occasion);
  std::vector<int> missing(bool only_left) const;

  Region& region_;
  int rank_;
  bool spin_;
  std::uint32_t round_ = 0;
  std::uint32_t target_ = 0;  ///< arrivals of all ranks that make round_ complete
};

}  // namespace lockstep::collective
