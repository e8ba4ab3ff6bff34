#pragma once

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/checkpoint_list.h"
#include "store/run_record.h"
#include "sys/files.h"

namespace lockstep::store {

/// The state of the driver of a run.
enum class DriverState {
  ended,     ///< the record says how the run ended
  alive,     ///< its process runs and holds the lock of the run directory
  gone,      ///< its process has ended
  left,      ///< its process runs, but has released the run directory: the run has no driver
  elsewhere  ///< it is on another host, so nothing is known
};

/// The state of the driver in `record`, the record of the run at `run`. A process is the driver only if both pid and
/// start time match the record. If the file system has no locks, only the process counts.
DriverState driver_state(const std::filesystem::path& run, const RunRecord& record);

/// What RunView::read does with fields of run.json that have the wrong type.
enum class OddFields {
  refuse,  ///< throws StorageError that names the first of them
  ignore   ///< they keep their defaults
};

/// A run as seen from outside, read from its directory. Reading never changes the directory and never unpickles. read()
/// reads one small file; checkpoints are read on request.
struct RunView {
  std::filesystem::path path;
  RunRecord record;
  DriverState driver = DriverState::ended;
  CheckpointConfig checkpoint_config{};  ///< the run's settings

  /// Throws StorageError if run.json cannot be read or is not a JSON object.
  static RunView read(const std::filesystem::path& path, OddFields odd = OddFields::refuse,
                      sys::Files& files = sys::files());

  /// The state in the record; "died" if the record says "running" and the driver is gone or has left.
  std::string state() const;
  /// In seconds, until now while it runs; nothing if it is unknown, as after the clock was set back.
  std::optional<double> duration() const;

  /// The committed checkpoints, lowest seq first, with their scores. Throws StorageError if the directory cannot be
  /// listed.
  std::vector<ListedCheckpoint> checkpoints() const;
  /// Those that can be used. Throws StorageError if one cannot be read, because it may be intact.
  std::vector<KeptCheckpoint> usable_checkpoints() const;
};

}  // namespace lockstep::store
