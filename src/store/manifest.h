#pragma once

#include <cstdint>
#include <filesystem>
#include <lockstep/value.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_entry.h"
#include "sys/files.h"

namespace lockstep::store {

/// The contents of manifest.json. A checkpoint is complete if and only if this file exists and every file matches it.
struct Manifest {
  int version = 1;
  int seq = 0;
  int attempt = 0;
  int world_size = 1;
  std::vector<int> ranks;  ///< the ranks that wrote its parts
  double created = 0;      ///< seconds since 1970
  Value metrics = Value::object();
  std::vector<FileEntry> files;
  bool validated = false;  ///< the metrics have what a check of the checkpoint found

  /// Of all files, in bytes.
  std::int64_t size() const;
};

Value to_value(const Manifest& manifest);
/// Indented JSON. Throws StorageError if parse_manifest would refuse it.
std::string to_text(const Manifest& manifest);
/// The inverse. Checks every field, and that no name leaves the directory or occurs twice; throws StorageError with
/// `where` and the field. Unknown fields are ignored; a higher version is refused.
Manifest parse_manifest(std::string_view text, std::string_view where);
/// Reads `directory`/manifest.json.
Manifest read_manifest(sys::Files& files, const std::filesystem::path& directory);

/// What one rank wrote of a checkpoint.
struct RankFiles {
  int rank = 0;
  std::vector<FileEntry> files;
};

/// The files of all parts, sorted by name. One name from two ranks throws ConfigError that names both.
std::vector<FileEntry> merge_parts(const std::vector<RankFiles>& parts);

}  // namespace lockstep::store
