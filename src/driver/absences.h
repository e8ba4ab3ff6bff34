#pragma once

#include <map>

#include "metrics/autofill.h"

namespace lockstep::driver {

/// The ranks of an elastic job that died and were started again, in one attempt: what the others did without them.
class Absences {
 public:
  void clear() { ranks_.clear(); }
  /// `rank` is started again, in place of one that died.
  void begin(int rank) { ranks_[rank] = {.replaces = true}; }

  /// Where a rank runs, for the time when it takes part.
  void note_place(int rank, const metrics::Place& place) { ranks_[rank].place = place; }
  metrics::Place place(int rank) const { return of(rank).place; }

  /// The others made so many reports that `rank` does not count itself.
  void note_missed(int rank, int reports) { ranks_[rank].missed += reports; }
  /// The number of a rank's report among those of all: a worker counts from where the others were when it was started.
  int counted(int rank, int report) const { return report < 0 ? report : report + of(rank).missed; }

  /// The same the other way round.
  int as_it_counts(int rank, int report) const { return report - of(rank).missed; }

  /// The others have finished without it.
  void note_needless(int rank) { ranks_[rank].needless = true; }
  bool is_needless(int rank) const { return of(rank).needless; }
  bool replaces(int rank) const { return of(rank).replaces; }

 private:
  struct Absence {
    metrics::Place place{};
    int missed = 0;
    bool replaces = false;
    bool needless = false;
  };
  Absence of(int rank) const {
    const auto found = ranks_.find(rank);
    return found == ranks_.end() ? Absence{} : found->second;
  }

  std::map<int, Absence> ranks_;
};

}  // namespace lockstep::driver
