#pragma once

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>
#include <lockstep/value.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/actions.h"
#include "store/checkpoint_list.h"
#include "store/run_directory.h"
#include "sys/descriptor.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// Whether the checkpoint was reported to be checked, so that Validations will add to its metrics.
bool asks_for_check(const Commit& commit);

/// The run's checkpoints, on disk and in memory: commits what agents and workers wrote, deletes those that are not
/// kept, and knows from which to resume. Used by the driver's thread only.
class CheckpointKeeper {
 public:
  /// `warn` is called for damaged checkpoints, and once if they have no score.
  CheckpointKeeper(store::RunDirectory& directory, CheckpointConfig config,
                   std::function<void(const std::string&)> warn);

  /// Loads the checkpoints that an earlier driver of this run committed. Throws StorageError if one cannot be read,
  /// after loading the others.
  void load();
  /// Removes what dead workers left, and hands out to all ranks the newest valid checkpoint of this run, from which the
  /// next attempt resumes. Calls load() first if necessary. Throws StorageError if the newest cannot be read;
  /// NoUsableCheckpoint if all are damaged, unless `may_begin_anew`.
  void begin_attempt(int world_size, bool may_begin_anew = false);

  /// One rank restarts alone. Removes its unfinished files and returns the latest checkpoint, from which it resumes.
  std::optional<Checkpoint> begin_rank(int rank);

  /// Commits the parts as one checkpoint and returns its number. Throws StorageError, or ConfigError if two ranks wrote
  /// a file of the same name. The partial files then stay until the next begin_attempt().
  int commit(Commit commit, int attempt, int world_size);

  /// A part of a checkpoint that was only in memory is durable too: commits it to disk. `attempt` and the report name
  /// the checkpoint. Throws as commit().
  void persist(const wire::CheckpointWritten& written, int attempt);
  /// Writes the latest checkpoint to disk if it is only in memory. Throws StorageError.
  void persist_latest();
  /// The latest checkpoint if it is in shared memory, for workers of this machine.
  std::optional<wire::MemoryFiles> latest_memory() const;
  /// The reports of this attempt whose checkpoints were dropped from memory since the last call.
  std::vector<int> take_released(int attempt);

  /// Deletes checkpoints that are not kept, and are not in `waiting`. Separate from commit(), because nobody needs to
  /// wait for it.
  void retain(const std::set<int>& waiting = {});

  /// Adds to the metrics of a checkpoint, also in its manifest, and scores it anew. Returns it with all its metrics;
  /// nothing if it is not kept. Throws StorageError.
  std::optional<std::pair<Checkpoint, Value>> add_metrics(int seq, const Value& metrics);

  /// The latest checkpoint, for a rank to read; it is not deleted before let_go().
  std::optional<Checkpoint> hand_out(int rank);
  /// The rank no longer needs the checkpoint that it was given.
  void let_go(int rank) { handed_out_.erase(rank); }
  /// A worker that starts has opened it.
  void opened(int rank) { opening_.erase(rank); }
  /// No worker is left.
  void let_go_all() { handed_out_.clear(); }

  bool in_memory() const { return config_.num_to_keep == 0; }
  int next_seq() const { return next_seq_; }
  void set_next_seq(int seq) { next_seq_ = std::max(next_seq_, seq); }
  std::optional<Checkpoint> latest() const;
  /// A checkpoint that is kept, with its metrics.
  std::pair<Checkpoint, Value> at(int seq) const;
  /// The metrics with which the latest was reported; an empty dict if there is none.
  Value latest_metrics() const;
  /// Worst first, best last, with their metrics.
  std::vector<std::pair<Checkpoint, Value>> best() const;

 private:
  std::optional<double> score_of(const Value& metrics, const std::vector<CheckpointPart>& parts) const;
  std::optional<store::CommittedCheckpoint> latest_good(bool may_begin_anew) const;
  /// Warns if a score attribute is set and no checkpoint has had it yet.
  void miss_score(const store::KeptCheckpoint& kept);
  Checkpoint memory_checkpoint(const Commit& commit, store::Manifest manifest) const;
  Checkpoint disk_checkpoint(const Commit& commit, store::Manifest manifest);
  Checkpoint shared_checkpoint(const Commit& commit, store::Manifest manifest, int attempt);
  Checkpoint commit_to_disk(const std::string& partial, const store::Manifest& manifest);
  static std::string path_of(const sys::Descriptor& memory);
  void put_on_disk(store::KeptCheckpoint kept);
  void drop_old_memory();
  bool is_unchanged(int seq) const;
  std::vector<store::KeptCheckpoint> on_disk() const;

  /// A checkpoint in shared memory.
  struct InMemory {
    int attempt = 0, report = 0;
    sys::Descriptor memory;
    std::vector<wire::HeldFile> files;
    store::Manifest manifest;
    bool is_on_disk = false;  ///< as well
  };
  /// What is known of a checkpoint that may still come to disk after it was dropped from memory.
  struct Due {
    int attempt = 0, report = 0;
    store::Manifest manifest;
    std::optional<double> score;
    Value metrics;
  };
  using Times = std::map<std::string, std::filesystem::file_time_type>;

  store::RunDirectory& directory_;
  CheckpointConfig config_;
  std::function<void(const std::string&)> warn_;
  std::vector<store::KeptCheckpoint> kept_;    ///< by seq
  std::map<int, int> handed_out_;              ///< seq by rank
  std::map<int, InMemory> in_memory_;          ///< by seq: the newest two, and those that are handed out
  std::map<int, Due> due_;                     ///< by seq
  std::map<int, int> opening_;                 ///< seq by rank: workers that start may still have to open it
  int last_given_ = -1;                        ///< the seq that a running worker was given last
  std::vector<std::pair<int, int>> released_;  ///< attempt and report
  std::map<int, Times> written_here_;          ///< by seq: the files' times, of checkpoints that this driver committed
  int next_seq_ = 0;
  bool loaded_ = false;
  bool warned_of_score_ = false;
};

}  // namespace lockstep::driver
