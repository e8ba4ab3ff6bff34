#pragma once

#include <optional>
#include <set>
#include <vector>

namespace lockstep::store {

enum class ScoreOrder { max, min };

struct ScoredCheckpoint {
  int seq = 0;
  std::optional<double>
      score;  ///< missing and NaN are worse than any number; without a score attribute all are missing
};

struct Retention {
  std::vector<int> remove;  ///< by seq, lowest first
  std::vector<int> best;    ///< the num_to_keep best: worst first, best last
};

/// Decides which checkpoints are kept. If scores are equal, the later is better. Without `num_to_keep` all are kept and
/// listed. The latest and those in `protect` are never removed, so more than num_to_keep may be kept.
Retention decide_retention(std::vector<ScoredCheckpoint> checkpoints, std::optional<int> num_to_keep, ScoreOrder order,
                           const std::set<int>& protect = {});

}  // namespace lockstep::store
