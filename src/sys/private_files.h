#pragma once

#include <filesystem>

#include "sys/files.h"

namespace lockstep::sys {

/// Throws StorageError unless `info`, of the entry at `path` itself, is of a file or directory that belongs to this
/// user and that nobody else can write. LOCKSTEP_TRUST_STORAGE=1 lets other owners and modes pass, never links.
void check_private(const FileInfo& info, const std::filesystem::path& path);

/// The operating system's files, where one directory is this user's alone. What lies below it is reached from the open
/// directory, component by component, and no link is followed there: whoever renames or replaces something on the way
/// to the directory changes nothing. Files below it are opened only when check_private() lets them pass.
class PrivateFiles final : public PosixFiles {
 public:
  /// From now on `root`, and the paths that begin with it, are this directory. Throws StorageError unless it is a
  /// directory that check_private() lets pass. Once, before other threads use this.
  void enter(const std::filesystem::path& root);

  OpenFile open(const std::filesystem::path& path, OpenMode mode) override;

 protected:
  Place locate(const std::filesystem::path& path) const override;

 private:
  Descriptor directory_;
  std::filesystem::path root_;
};

}  // namespace lockstep::sys
