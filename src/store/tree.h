#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sys/files.h"

namespace lockstep::store {

inline constexpr std::string_view kManifestName = "manifest.json";

/// One entry below a directory that is not itself a directory.
struct TreeFile {
  std::string name;            ///< relative to the root, parts joined by '/'
  std::filesystem::path path;  ///< the file itself, links resolved
  std::uint64_t size = 0;
  sys::FileKind kind = sys::FileKind::file;
};

enum class Links {
  keep,          ///< a link, like a pipe or a device, is an entry of its own kind
  follow_inside  ///< links stand for what they point at; one that leaves the root, like a pipe or a device, is an error
};

/// Everything below `root`, sorted by name. Throws StorageError; also for links in a circle.
std::vector<TreeFile> list_tree(sys::Files& files, const std::filesystem::path& root, Links links);

/// What is wrong with `name` as a file's name in a checkpoint ("is absolute", ...), or nothing. Right are relative
/// paths of plain components in UTF-8: no `.` or `..`, no control character, no component that ends in `.partial`, and
/// not manifest.json, which Lockstep writes itself.
std::string file_name_problem(std::string_view name);

}  // namespace lockstep::store
