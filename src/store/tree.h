#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sys/files.h"

namespace lockstep::store {

inline constexpr std::string_view kManifestName = "manifest.json";

/// An entry in a directory tree that is not itself a directory.
struct TreeFile {
  std::string name;            ///< relative to the root, parts joined by '/'
  std::filesystem::path path;  ///< the file itself, links resolved
  std::uint64_t size = 0;
  sys::FileKind kind = sys::FileKind::file;
};

enum class Links {
  keep,          ///< links are entries of their own kind, like pipes and devices
  follow_inside  ///< links are followed; links out of the root, pipes and devices are errors
};

/// Everything below `root`, sorted by name. Throws StorageError, also for cyclic links.
std::vector<TreeFile> list_tree(sys::Files& files, const std::filesystem::path& root, Links links);

/// What is wrong with `name` as a file name in a checkpoint ("is absolute", ...), or nothing. Valid names are relative
/// paths of plain components in UTF-8, without `.` or `..`, control characters or a component that ends in `.partial`;
/// manifest.json is reserved.
std::string file_name_problem(std::string_view name);

}  // namespace lockstep::store
