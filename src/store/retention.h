#pragma once

#include <optional>
#include <set>
#include <vector>

namespace lockstep::store {

enum class ScoreOrder { max, min };

struct ScoredCheckpoint {
  int seq = 0;
  std::optional<double> score;  ///< nothing, like NaN, is worse than any number; without scores all have nothing
};

struct Retention {
  std::vector<int> remove;  ///< by seq, lowest first
  std::vector<int> best;    ///< the num_to_keep best: worst first, best last
};

/// Which checkpoints stay. Equal scores: the later is better. Without `num_to_keep` all stay and all are listed.
/// The latest and those in `protect` are never removed, so that more than num_to_keep may stay.
Retention decide_retention(std::vector<ScoredCheckpoint> checkpoints, std::optional<int> num_to_keep, ScoreOrder order,
                           const std::set<int>& protect = {});

}  // namespace lockstep::store
