#include "store/retention.h"

#include <algorithm>
#include <cmath>

namespace lockstep::store {
namespace {

bool is_number(const std::optional<double>& score) { return score && !std::isnan(*score); }

}  // namespace

Retention decide_retention(std::vector<ScoredCheckpoint> checkpoints, std::optional<int> num_to_keep, ScoreOrder order,
                           const std::set<int>& protect) {
  std::sort(checkpoints.begin(), checkpoints.end(), [](const auto& a, const auto& b) { return a.seq < b.seq; });
  const int latest = checkpoints.empty() ? -1 : checkpoints.back().seq;
  // A stable sort, so that of equal ones the later comes after the earlier, nearer to the best.
  std::stable_sort(checkpoints.begin(), checkpoints.end(), [&](const ScoredCheckpoint& a, const ScoredCheckpoint& b) {
    if (!is_number(a.score) || !is_number(b.score)) return !is_number(a.score) && is_number(b.score);
    return order == ScoreOrder::max ? *a.score < *b.score : *a.score > *b.score;
  });
  const std::size_t keep = num_to_keep
                               ? std::min(checkpoints.size(), static_cast<std::size_t>(std::max(0, *num_to_keep)))
                               : checkpoints.size();
  Retention decided;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const int seq = checkpoints[i].seq;
    if (i >= checkpoints.size() - keep)
      decided.best.push_back(seq);
    else if (seq != latest && !protect.contains(seq))
      decided.remove.push_back(seq);
  }
  std::sort(decided.remove.begin(), decided.remove.end());
  return decided;
}

}  // namespace lockstep::store
