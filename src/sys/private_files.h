#pragma once

#include <filesystem>

#include "sys/files.h"

namespace lockstep::sys {

/// Throws StorageError unless the entry at `path`, described by `info`, is a file or directory that belongs to this
/// user and that nobody else can write. LOCKSTEP_TRUST_STORAGE=1 accepts other owners and modes, but never links.
void check_private(const FileInfo& info, const std::filesystem::path& path);

/// Whether LOCKSTEP_TRUST_STORAGE=1 is in this process's environment.
bool storage_is_trusted();

/// The real file system with one private directory. Everything below it is reached from the open directory, component
/// by component, without following links, so renaming or replacing a part of the path to it has no effect. Files below
/// it are opened only if check_private() accepts them.
class PrivateFiles : public PosixFiles {
 public:
  /// Makes `root` the private directory for all paths that begin with it. Throws StorageError unless it is a directory
  /// that check_private() accepts. Call it once, before other threads use this object.
  void enter(const std::filesystem::path& root);
  /// Like LOCKSTEP_TRUST_STORAGE=1, for this object. Call it before enter().
  void trust() { trusted_ = true; }

  OpenFile open(const std::filesystem::path& path, OpenMode mode) override;

 protected:
  Place locate(const std::filesystem::path& path) const override;

 private:
  Descriptor directory_;
  std::filesystem::path root_;
  bool trusted_ = storage_is_trusted();
};

}  // namespace lockstep::sys
