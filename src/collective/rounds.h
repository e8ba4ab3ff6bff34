#pragma once

#include <cstdint>

#include "collective/faults.h"
#include "collective/region.h"

namespace lockstep::collective {

/// How ranks synchronise their use of the staging slots. In every round each rank fills its slot of the round, arrives,
/// waits for the others, and then reads their slots. A rank that has arrived at the next round has finished reading.
/// Each rank has three slots, so the slot of the next round may be filled between arriving and waiting.
///
/// One thread at a time.
class Rounds {
 public:
  /// `spin`: spin for a while before sleeping; use it only if every rank has its own core.
  Rounds(Region& region, int rank, bool spin) : region_(region), rank_(rank), spin_(spin) {}

  /// The round that this rank arrives at next: its slot may be filled now.
  std::uint32_t next() const { return round_ + 1; }
  /// Arrives: the others may now read the slot of next().
  void arrive();
  /// Waits until all ranks have arrived at this rank's round; returns the round, whose slots may now be read. Succeeds
  /// even if ranks have died or left, as long as they had arrived. Throws as faults.h says.
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
  std::uint32_t target_ = 0;  ///< total arrivals at which round_ is complete
};

}  // namespace lockstep::collective
