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

  DirectoryLock(DirectoryLock&&) = default;
  DirectoryLock& operator=(DirectoryLock&&) = default;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(Descriptor directory) : directory_(std::move(directory)) {}

  Descriptor directory_;
};

}  // namespace lockstep::sys
