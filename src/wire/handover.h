#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

/// What a worker and its agent say about checkpoints, on the worker's socket. The agent relays the worker's other
/// frames unread, and knows these by their beginning (wire::holds in codec.h).
///
///     worker ── CheckpointHeld, with a descriptor ──► agent
///     worker ◄─ CheckpointStored ── agent
namespace lockstep::wire {

/// A file in shared memory.
struct HeldFile {
  std::string name;  ///< as in FileEntry
  std::int64_t offset = 0, size = 0;
  bool operator==(const HeldFile&) const = default;
  LOCKSTEP_FIELDS(name, offset, size);
};

/// A checkpoint in the shared memory of another process.
struct MemoryFiles {
  std::string path;  ///< by which this machine's processes open the memory; empty: there is no checkpoint
  std::vector<HeldFile> files;
  std::string manifest;  ///< manifest.json's text
  bool operator==(const MemoryFiles&) const = default;
  LOCKSTEP_FIELDS(path, files, manifest);
};

/// This rank's part of the checkpoint of report `report` is in the shared memory whose descriptor comes with this
/// frame. From now on it is the agent's: it writes the part, tells the driver (CheckpointWritten in the rank's name),
/// and answers CheckpointStored. The worker may die meanwhile.
struct CheckpointHeld {
  static constexpr const char* kName = "checkpoint_held";
  int report = 0;
  std::string storage;   ///< the run directory
  bool trusted = false;  ///< whether it may belong to others (LOCKSTEP_TRUST_STORAGE)
  std::string partial;   ///< the directory in it
  std::vector<HeldFile> files;
  std::optional<double> score;
  bool keep = false;     ///< it counts as soon as its hashes are known, and stays in memory until ReleaseCheckpoint
  bool persist = true;   ///< write it to storage
  bool instead = false;  ///< instead of those that wait for their turn: they are dropped
  LOCKSTEP_FIELDS(report, storage, trusted, partial, files, score, keep, persist, instead);
};

/// The part is durable, or counts as held in memory, or could not be written. With `free` the worker may use the memory
/// again; of a part that stays in memory, a second message says so.
struct CheckpointStored {
  static constexpr const char* kName = "checkpoint_stored";
  int report = 0;
  std::string error;  ///< empty: all is well
  bool free = true;
  LOCKSTEP_FIELDS(report, error, free);
};

}  // namespace lockstep::wire
