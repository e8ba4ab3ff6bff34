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

/// Where runs lie by default: LOCKSTEP_STORAGE_PATH, where a `~` at the start is the home directory, else
/// ~/lockstep_results. Throws ConfigError when it takes HOME and that is not set.
std::filesystem::path default_storage_path();

/// A checkpoint that is committed.
struct CommittedCheckpoint {
  int seq = 0;
  std::filesystem::path path;
  Manifest manifest;
};

/// There are checkpoints, and every one is damaged.
class NoUsableCheckpoint : public StorageError {
  using StorageError::StorageError;
};

/// A run's directory: the run's only state. One driver at a time writes it; anybody may read it meanwhile.
///
/// Everything that a function has written is durable when it returns, and whatever moment the process ends at, a file
/// has its old contents or its new ones, and a checkpoint is there whole or not at all. What an interrupted call leaves
/// bears a name in `.partial` or `.trash`, which nothing reads and remove_partials() removes. Throws StorageError.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path, sys::Files& files = sys::files())
      : files_(files), path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  /// Is there a run? (Has it a run.json?)
  bool exists() const;
  /// Makes the directory, those above it, and logs/. Throws ConfigError when a run or anything else is there already;
  /// an empty directory of this user's alone, or one that a killed driver left before its run.json, is fine.
  void create();
  /// For a run that goes on: throws ConfigError when there is none, then as check_owner(); makes logs/ when it is
  /// missing.
  void open();
  /// Throws StorageError unless the directory and everything in it that runs write is this user's alone: owned, not
  /// writable by others, no link. Other entries (a tracker's, a person's) are not looked at.
  void check_owner() const;

  /// Keeps other drivers out for as long as this lives. Throws ConfigError, naming its process, when there is one.
  void lock();

  void write_run_json(const Value& run);
  Value read_run_json() const { return read_json("run.json"); }
  /// run.json, params.json. Throws StorageError when it is no JSON.
  Value read_json(std::string_view name) const;
  /// Writes params.json, function.pkl and the like: one path component.
  void write_file(std::string_view name, std::span<const std::uint8_t> bytes);
  void write_file(std::string_view name, std::string_view text);
  Bytes read_file(std::string_view name) const;
  bool has_file(std::string_view name) const;
  std::filesystem::path logs() const { return path_ / "logs"; }

  /// "checkpoint_000012"; seven digits and more where they are needed.
  static std::string checkpoint_name(int seq);
  /// "checkpoint_000012.partial", where workers write.
  static std::string partial_name(int seq);
  std::filesystem::path checkpoint_path(int seq) const { return path_ / checkpoint_name(seq); }

  /// The committed checkpoints, lowest seq first.
  std::vector<int> checkpoints() const;
  /// A seq that no checkpoint here has had, unfinished and half-removed ones included; 0 in a new run.
  int next_seq() const;
  /// Removes what interrupted calls and workers have left. Not while workers write.
  void remove_partials();

  /// Commits what workers have written to `partial`: one path component that ends in `.partial`, and where it begins
  /// like a checkpoint's name, with this seq. Throws, and commits nothing, when the directory does not hold exactly the
  /// manifest's files with their sizes. Returns the checkpoint's path.
  std::filesystem::path commit(std::string_view partial, const Manifest& manifest);
  /// Removes a checkpoint: it is gone as such before any of its files is. One that is not there is fine.
  void remove_checkpoint(int seq);

  /// Throws when the checkpoint is not there or its manifest is broken.
  CommittedCheckpoint checkpoint(int seq) const;
  /// The newest checkpoint whose files are all as its manifest says. `warn` is called for each newer one that is not.
  /// Throws when one of those cannot be read: it may be whole. Nothing when there is no checkpoint at all;
  /// NoUsableCheckpoint when there are some.
  std::optional<CommittedCheckpoint> latest_good(const std::function<void(std::string)>& warn) const;

 private:
  /// All that bear a checkpoint's name, lowest seq first: a manifest may have been lost.
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
