#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/manifest.h"
#include "sys/files.h"

namespace lockstep::store {

/// One problem of a checkpoint.
struct Problem {
  std::string file;  ///< relative to the checkpoint's directory
  std::string what;  ///< "is missing", ...
  /// The file could not be read; it may be intact.
  bool unreadable = false;
};

/// Compares a committed checkpoint with its manifest: all files exist, there are no others, sizes and hashes match.
/// Reads all files. Returns an empty list if it is intact; a file that cannot be read is also a problem, marked as
/// such.
std::vector<Problem> verify_checkpoint(const std::filesystem::path& path, sys::Files& files = sys::files());

/// Checks only names and sizes, without reading the files; ignores manifest.json. Throws StorageError if the directory
/// cannot be listed.
std::vector<Problem> compare_sizes(const std::filesystem::path& path, const std::vector<FileEntry>& expected,
                                   sys::Files& files);

/// "data.json is missing; x.bin has the wrong hash".
std::string to_text(const std::vector<Problem>& problems);

}  // namespace lockstep::store
