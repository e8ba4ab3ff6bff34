#pragma once

#include <filesystem>
#include <functional>
#include <lockstep/value.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/manifest.h"
#include "sys/directory_lock.h"
#include "sys/files.h"

namespace lockstep::store {

/// The default storage path: LOCKSTEP_STORAGE_PATH, in which a leading `~` is the home directory, or else
/// ~/lockstep_results. Throws ConfigError if HOME is needed and not set.
std::filesystem::path default_storage_path();

/// A committed checkpoint.
struct CommittedCheckpoint {
  int seq = 0;
  std::filesystem::path path;
  Manifest manifest;
};

/// There are checkpoints, and all of them are damaged.
class NoUsableCheckpoint : public StorageError {
  using StorageError::StorageError;
};

/// A run's directory, which holds all state of the run. One driver at a time writes it; others may read it at any time.
///
/// When a function returns, everything it wrote is durable. Whenever the process ends, a file has its old or its new
/// contents, and a checkpoint is either complete or absent. What an interrupted call leaves has a name that ends in
/// `.partial` or `.trash`; nothing reads it, and remove_partials() removes it. Functions throw StorageError.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path, sys::Files& files = sys::files())
      : files_(files), path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  /// Whether there is a run, that is, a run.json.
  bool exists() const;
  /// Creates the directory, its parents, and logs/. Throws ConfigError if a run or anything else exists there, except
  /// an empty directory that only this user can write, or one that a driver left that was killed before it wrote
  /// run.json.
  void create();
  /// For a run that is continued: throws ConfigError if there is none, calls check_owner(), and creates logs/ if it is
  /// missing.
  void open();
  /// Throws StorageError unless this user owns the directory and everything in it that runs write, and others cannot
  /// write it; links are refused. Other entries, such as a tracker's, are not checked.
  void check_owner() const;

  /// Locks out other drivers while this object exists. If there is another driver, throws ConfigError that names its
  /// process.
  void lock();

  void write_run_json(const Value& run);
  Value read_run_json() const { return read_json("run.json"); }
  /// Reads run.json or params.json. Throws StorageError if it is not JSON.
  Value read_json(std::string_view name) const;
  /// Writes params.json or a similar file; the name is one path component. A power cut before the next
  /// write_run_json() returns may undo it.
  void write_file(std::string_view name, std::span<const std::uint8_t> bytes);
  void write_file(std::string_view name, std::string_view text);
  Bytes read_file(std::string_view name) const;
  bool has_file(std::string_view name) const;
  std::filesystem::path logs() const { return path_ / "logs"; }

  /// "checkpoint_000012"; more than six digits if needed.
  static std::string checkpoint_name(int seq);
  /// "checkpoint_000012.partial", where workers write.
  static std::string partial_name(int seq);
  std::filesystem::path checkpoint_path(int seq) const { return path_ / checkpoint_name(seq); }

  /// The committed checkpoints, lowest seq first.
  std::vector<int> checkpoints() const;
  /// A seq that no checkpoint here has used, including unfinished and partly removed ones; 0 in a new run.
  int next_seq() const;
  /// Removes what interrupted calls and workers left. Do not call it while workers write.
  void remove_partials();

  /// Commits what workers have written to `partial`: one path component that ends in `.partial`; if it begins like a
  /// checkpoint's name, it has this seq. Throws, and commits nothing, unless the directory holds exactly the manifest's
  /// files with their sizes. Returns the checkpoint's path.
  std::filesystem::path commit(std::string_view partial, const Manifest& manifest);
  /// Adds to the metrics in a checkpoint's manifest, which is replaced at once. Throws if it is missing or malformed.
  void add_metrics(int seq, const Value& metrics);
  /// Removes a checkpoint. It is renamed before any of its files is removed. A missing checkpoint is not an error.
  void remove_checkpoint(int seq);

  /// Throws if the checkpoint does not exist or its manifest is malformed.
  CommittedCheckpoint checkpoint(int seq) const;
  /// The newest checkpoint whose files match its manifest. Calls `warn` for each newer one that is damaged. Throws if a
  /// newer one cannot be read, because it may be intact. Returns nothing if there is no checkpoint at all; throws
  /// NoUsableCheckpoint if all are damaged.
  std::optional<CommittedCheckpoint> latest_good(const std::function<void(std::string)>& warn) const;

 private:
  /// All directories with a checkpoint's name, lowest seq first; a manifest may be missing.
  std::vector<int> checkpoint_directories() const;
  std::filesystem::path file_path(std::string_view name) const;
  bool is_unused() const;
  void check_owner_below(const std::filesystem::path& path) const;
  void make_logs();

  sys::Files& files_;
  const std::filesystem::path path_;
  std::optional<sys::DirectoryLock> lock_;
};

}  // namespace lockstep::store
