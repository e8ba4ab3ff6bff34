#pragma once

#include <cstdint>
#include <filesystem>
#include <lockstep/value.h>
#include <string>
#include <string_view>
#include <vector>

#include "sys/files.h"

namespace lockstep::store {

/// One file of a checkpoint.
struct FileEntry {
  std::string name;  ///< relative, parts joined by '/'
  std::int64_t size = 0;
  std::string xxh3_128;  ///< 32 hexadecimal digits
  bool operator==(const FileEntry&) const = default;
};

/// What manifest.json holds. A checkpoint is whole if and only if this file is there and every file is as it says.
struct Manifest {
  int version = 1;
  int seq = 0;
  int attempt = 0;
  int world_size = 1;
  std::vector<int> ranks;  ///< whose parts it is made of
  double created = 0;      ///< seconds since 1970
  Value metrics = Value::object();
  std::vector<FileEntry> files;
};

Value to_value(const Manifest& manifest);
/// Indented, for people; throws StorageError when parse_manifest would refuse it.
std::string to_text(const Manifest& manifest);
/// The inverse. Checks every field, and that no name leaves the directory or stands twice; throws StorageError with
/// `where` and the field. Fields that it does not know are ignored, a higher version is refused.
Manifest parse_manifest(std::string_view text, std::string_view where);
/// Reads `directory`/manifest.json.
Manifest read_manifest(sys::Files& files, const std::filesystem::path& directory);

/// What one rank wrote.
struct Part {
  int rank = 0;
  std::vector<FileEntry> files;
};

/// The files of all parts, sorted by name. One name from two ranks throws ConfigError that names both.
std::vector<FileEntry> merge_parts(const std::vector<Part>& parts);

}  // namespace lockstep::store
