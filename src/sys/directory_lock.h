#pragma once

#include <filesystem>
#include <optional>

#include "sys/descriptor.h"

namespace lockstep::sys {

/// A lock on a directory, held by one process at a time, without a lock file. It is released when this object is
/// destroyed or the process ends in any way.
class DirectoryLock {
 public:
  /// Nothing if another process holds it. On a file system without such locks every process gets one. Throws
  /// StorageError if the directory cannot be opened.
  static std::optional<DirectoryLock> take(const std::filesystem::path& directory);
  /// The same for an open directory; the caller keeps the descriptor.
  static std::optional<DirectoryLock> take(int directory);
  /// Whether a process holds the lock; nothing if the file system has no such locks.
  static std::optional<bool> is_held(const std::filesystem::path& directory);

  DirectoryLock(DirectoryLock&&) = default;
  DirectoryLock& operator=(DirectoryLock&&) = default;
  ~DirectoryLock();

 private:
  static std::optional<DirectoryLock> lock(Descriptor opened);
  explicit DirectoryLock(Descriptor directory) : directory_(std::move(directory)) {}

  Descriptor directory_;
};

}  // namespace lockstep::sys
