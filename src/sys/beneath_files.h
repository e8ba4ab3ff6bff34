#pragma once

#include <filesystem>

#include "sys/files.h"

namespace lockstep::sys {

/// The real file system, read only, confined to one directory. Paths must begin with the root. They are opened beneath
/// the open root (openat2 with RESOLVE_BENEATH), so neither `..` nor a link leads out of it, also if the tree changes
/// meanwhile. Links between directories within the root are followed; a file that is a link is refused. Everything that
/// would change the file system throws StorageError. Any thread may call.
class BeneathFiles final : public PosixFiles {
 public:
  /// Throws StorageError unless `root` is a directory that can be opened. It may be reached through links.
  explicit BeneathFiles(const std::filesystem::path& root);

  /// Absolute, without links.
  const std::filesystem::path& root() const { return root_; }

  OpenFile open(const std::filesystem::path& path, OpenMode mode) override;
  /// Also FileKind::none if a directory on the way is missing. Links to files are never followed.
  FileInfo info(const std::filesystem::path& path, bool follow_links = false) override;
  /// Opens a directory without reading it (O_PATH). `/proc/self/fd/<n>` then names exactly this one.
  Descriptor open_directory(const std::filesystem::path& path) const;

 protected:
  Place locate(const std::filesystem::path& path) const override;

 private:
  std::filesystem::path root_;
  Descriptor directory_;
};

}  // namespace lockstep::sys
