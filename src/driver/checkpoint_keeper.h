#pragma once

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>
#include <lockstep/value.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "driver/state.h"
#include "store/run_directory.h"

namespace lockstep::driver {

/// The run's checkpoints: commits what workers wrote, deletes what need not be kept, knows where to resume.
/// The driver's thread alone uses it.
class CheckpointKeeper {
 public:
  /// `warn` hears of checkpoints that are broken, and once of a score that they lack.
  CheckpointKeeper(store::RunDirectory& directory, CheckpointConfig config,
                   std::function<void(const std::string&)> warn);

  /// Takes over what an earlier driver of this run committed. Throws StorageError when one cannot be read, after it has
  /// taken the others.
  void load();
  /// Clears what dead workers left, and finds where the next attempt resumes: the newest valid checkpoint of this run,
  /// which is handed out to all ranks. Loads first, unless it has. Throws StorageError when the newest cannot be read;
  /// NoUsableCheckpoint when all are damaged, unless the run `may_begin_anew`.
  void begin_attempt(int world_size, bool may_begin_anew = false);

  /// One rank begins anew, alone: what it left half-written goes. The latest, for it to resume from.
  std::optional<Checkpoint> begin_rank(int rank);

  /// Makes the parts one committed checkpoint. Throws StorageError; then the partial files stay for the next
  /// begin_attempt().
  Checkpoint commit(const Commit& commit, int attempt, int world_size, Value metrics);

  /// Deletes what need not be kept. Apart from commit(): nobody need wait for it.
  void retain();

  /// The latest, for a rank to read: it is not deleted before let_go().
  std::optional<Checkpoint> hand_out(int rank);
  /// The rank has got beyond the checkpoint that it was given.
  void let_go(int rank) { handed_out_.erase(rank); }
  /// No worker is left.
  void let_go_all() { handed_out_.clear(); }

  bool in_memory() const { return config_.num_to_keep == 0; }
  int next_seq() const { return next_seq_; }
  void set_next_seq(int seq) { next_seq_ = std::max(next_seq_, seq); }
  std::optional<Checkpoint> latest() const;
  /// The metrics with which the latest was reported; an empty dict when there is none.
  Value latest_metrics() const;
  /// Worst first, best last, with their metrics.
  std::vector<std::pair<Checkpoint, Value>> best() const;

 private:
  struct Kept {
    int seq;
    std::optional<double> score;
    Value metrics;
    Checkpoint checkpoint;
  };
  std::optional<double> score_of(const Value& metrics, const std::vector<Part>& parts) const;
  std::optional<store::CommittedCheckpoint> latest_good(bool may_begin_anew) const;
  /// Warns when there is to be a score and none has been seen.
  void miss_score(const Kept& kept);
  Checkpoint memory_checkpoint(const Commit& commit, store::Manifest manifest) const;
  Checkpoint disk_checkpoint(const Commit& commit, store::Manifest manifest) const;

  store::RunDirectory& directory_;
  CheckpointConfig config_;
  std::function<void(const std::string&)> warn_;
  std::vector<Kept> kept_;         ///< by seq
  std::map<int, int> handed_out_;  ///< seq by rank
  int next_seq_ = 0;
  bool loaded_ = false;
  bool warned_of_score_ = false;
};

}  // namespace lockstep::driver
