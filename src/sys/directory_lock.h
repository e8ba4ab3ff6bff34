#pragma once

#include <filesystem>
#include <optional>

#include "sys/descriptor.h"

namespace lockstep::sys {

/// Held by one process at a time, on a directory, without a file of its own. It goes when this is destroyed or the
/// process ends, however it ends.
class DirectoryLock {
 public:
  /// Nothing when somebody holds it. On a file system that knows no such locks everybody gets one. Throws StorageError
  /// when the directory cannot be opened.
  static std::optional<DirectoryLock> take(const std::filesystem::path& directory);
  /// The same of a directory that is open; the descriptor stays the caller's.
  static std::optional<DirectoryLock> take(int directory);
  /// Whether somebody holds it; nothing where the file system knows no such locks.
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
