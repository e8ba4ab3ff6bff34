#pragma once

#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>
#include <lockstep/value.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The result of a run. All of it can be read again from the run directory.
struct Result {
  std::filesystem::path path;       ///< the run directory
  std::string state;                ///< finished, failed, interrupted, stopped, preempted, running, died
  Value metrics = Value::object();  ///< rank 0's last report, with the autofilled keys
  Value config = Value::object();
  std::optional<Checkpoint> checkpoint;                        ///< the latest
  std::vector<std::pair<Checkpoint, Value>> best_checkpoints;  ///< with their metrics: worst first, best last
  std::vector<Failure> failures;                               ///< of all attempts
  std::vector<int> world_sizes;                                ///< of all attempts: their numbers of workers
  std::string error;                                           ///< empty unless the run failed
  std::string trainer;                                         ///< the trainer's class

  std::optional<Checkpoint> best_checkpoint() const {
    return best_checkpoints.empty() ? checkpoint : std::optional(best_checkpoints.back().first);
  }

  /// Reads a run, given its directory or its name in the default storage path. Throws StorageError if there is none.
  static Result from_path(const std::filesystem::path& run);
};

}  // namespace lockstep
