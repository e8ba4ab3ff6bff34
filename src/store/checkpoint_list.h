#pragma once

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/manifest.h"
#include "store/retention.h"
#include "store/run_directory.h"

namespace lockstep::store {

/// One of a run's checkpoints, as found in its directory.
struct ListedCheckpoint {
  int seq = 0;
  std::filesystem::path path;
  std::optional<Manifest> manifest{};      ///< nothing if it cannot be read
  std::optional<Checkpoint> checkpoint{};  ///< nothing if it cannot be used; `problem` says why
  std::optional<double> score{};           ///< by which the run chooses its best checkpoints
  std::string problem{};
  bool unreadable = false;  ///< the system refused to read it; it may be intact
};

/// A committed checkpoint and its score.
struct KeptCheckpoint {
  int seq = 0;
  std::optional<double> score;
  Value metrics = Value::object();
  Checkpoint checkpoint;
};

/// The run's committed checkpoints, lowest seq first. Their files are not verified. Without a `score_attribute` they
/// have no score. Throws StorageError if the directory cannot be listed.
std::vector<ListedCheckpoint> list_checkpoints(const RunDirectory& run, const std::string& score_attribute = "");

/// Those that can be used.
std::vector<KeptCheckpoint> usable(const std::vector<ListedCheckpoint>& listed);
/// Throws StorageError if one is unreadable.
void check_readable(const std::vector<ListedCheckpoint>& listed);

/// As decide_retention in store/retention.h, by the rule of `config`.
Retention decide_retention(const std::vector<KeptCheckpoint>& kept, const CheckpointConfig& config,
                           const std::set<int>& protect = {});

/// The best by the rule of `config`, with their metrics: worst first, best last.
std::vector<std::pair<Checkpoint, Value>> best_checkpoints(const std::vector<KeptCheckpoint>& kept,
                                                           const CheckpointConfig& config);

}  // namespace lockstep::store
