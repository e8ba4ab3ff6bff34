#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/manifest.h"
#include "sys/files.h"

namespace lockstep::store {

/// One thing that is wrong with a checkpoint.
struct Problem {
  std::string file;  ///< relative to the checkpoint's directory
  std::string what;  ///< "is missing", ...
  /// The system would not let us look: the file may be whole.
  bool unreadable = false;
};

/// Compares a committed checkpoint with its manifest: every file there, none besides, sizes and hashes right. Reads all
/// of it. Empty when it is whole; a file that cannot be read is a problem, too, marked as such.
std::vector<Problem> verify_checkpoint(const std::filesystem::path& path, sys::Files& files = sys::files());

/// The same without reading the files: are exactly these there, with these sizes? (manifest.json aside.) Throws
/// StorageError when the directory cannot be listed.
std::vector<Problem> compare_sizes(const std::filesystem::path& path, const std::vector<FileEntry>& expected,
                                   sys::Files& files);

/// "data.json is missing; x.bin has the wrong hash".
std::string to_text(const std::vector<Problem>& problems);

}  // namespace lockstep::store
