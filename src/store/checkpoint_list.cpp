#include "store/checkpoint_list.h"

#include <lockstep/array.h>
#include <lockstep/error.h>

#include <algorithm>

#include "store/score.h"

namespace lockstep::store {
namespace {

void fill_in(ListedCheckpoint& listed, const RunDirectory& run, const std::string& score_attribute) {
  try {
    listed.manifest = run.checkpoint(listed.seq).manifest;
    Checkpoint checkpoint = Checkpoint::from_directory(listed.path);
    if (!score_attribute.empty()) listed.score = score_of(checkpoint, listed.manifest->metrics, score_attribute);
    listed.checkpoint = std::move(checkpoint);
  } catch (const sys::FileError& error) {
    listed.problem = error.what();
    listed.unreadable = !error.is_missing();
  } catch (const StorageError& error) {
    listed.problem = error.what();
  }
}

}  // namespace

std::vector<ListedCheckpoint> list_checkpoints(const RunDirectory& run, const std::string& score_attribute) {
  std::vector<ListedCheckpoint> list;
  for (const int seq : run.checkpoints()) {
    list.push_back({seq, run.checkpoint_path(seq)});
    fill_in(list.back(), run, score_attribute);
  }
  return list;
}

std::vector<KeptCheckpoint> usable(const std::vector<ListedCheckpoint>& listed) {
  std::vector<KeptCheckpoint> kept;
  for (const ListedCheckpoint& each : listed)
    if (each.checkpoint) kept.push_back({each.seq, each.score, each.manifest->metrics, *each.checkpoint});
  return kept;
}

void check_readable(const std::vector<ListedCheckpoint>& listed) {
  const auto found = std::ranges::find(listed, true, &ListedCheckpoint::unreadable);
  if (found != listed.end()) throw StorageError(found->problem);
}

Retention decide_retention(const std::vector<KeptCheckpoint>& kept, const CheckpointConfig& config,
                           const std::set<int>& protect) {
  std::vector<ScoredCheckpoint> scored;
  for (const KeptCheckpoint& each : kept) scored.push_back({each.seq, each.score});
  const auto order = config.score_order == "min" ? ScoreOrder::min : ScoreOrder::max;
  return decide_retention(std::move(scored), config.num_to_keep, order, protect);
}

std::vector<std::pair<Checkpoint, Value>> best_checkpoints(const std::vector<KeptCheckpoint>& kept,
                                                           const CheckpointConfig& config) {
  std::vector<std::pair<Checkpoint, Value>> best;
  for (const int seq : decide_retention(kept, config).best) {
    const auto found = std::ranges::find(kept, seq, &KeptCheckpoint::seq);
    best.emplace_back(found->checkpoint, with_summaries(found->metrics));
  }
  return best;
}

}  // namespace lockstep::store
