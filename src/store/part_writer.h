#pragma once

#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/manifest.h"
#include "sys/files.h"

namespace lockstep::store {

/// A file in memory; the bytes are borrowed.
struct MemoryFile {
  std::string name;
  std::span<const std::byte> bytes;
};

/// An encoded dict checkpoint; everything is borrowed.
struct DictParts {
  std::string_view data;                              ///< data.json's text
  std::span<const Tensor> tensors;                    ///< for tensors.safetensors; none: no such file
  std::optional<std::span<const std::byte>> objects;  ///< for objects.pkl
};

/// Converts the parts to the files of a Checkpoint in memory.
std::vector<std::pair<std::string, Bytes>> to_files(const DictParts& parts);

/// Writes one rank's part of a checkpoint into a `.partial` directory. Other ranks may write into it at the same time.
///
/// When a function returns, its files and their names are durable. A file name that is not allowed (see
/// file_name_problem) throws ConfigError before anything is written. Other errors throw StorageError, and
/// RunDirectory::remove_partials() removes what was written. If another rank has already used a name, the file is not
/// touched and its entry has an empty hash; merge_parts(), which knows the ranks, then throws.
class PartWriter {
 public:
  /// `directory` is created if it is missing; its parent must exist.
  PartWriter(sys::Files& files, std::filesystem::path directory) : files_(files), directory_(std::move(directory)) {}

  std::vector<FileEntry> write_files(std::span<const MemoryFile> contents);
  std::vector<FileEntry> write_dict(const DictParts& parts);
  /// Copies the files in `source`. Links within it are followed; a link that leads out of it, a pipe or a device is an
  /// error. A committed checkpoint can be copied: its manifest is left out, and its hashes must be right. If this
  /// throws, it has removed the files that it created, so that another checkpoint can use the directory. Files named in
  /// `without` are left out.
  std::vector<FileEntry> copy_directory(const std::filesystem::path& source, const std::set<std::string>& without = {});

 private:
  /// Creates the parent directories of `name` and the file; `fill` writes it.
  template <typename Fill>
  FileEntry write_one(const std::string& name, std::uint64_t size, Fill fill);
  std::vector<FileEntry> copy(const std::filesystem::path& source, const std::set<std::string>& without);
  void sync_directories();

  sys::Files& files_;
  const std::filesystem::path directory_;
  std::set<std::filesystem::path> directories_;  ///< directories in which names were created
  std::vector<std::filesystem::path> made_;      ///< the files
};

}  // namespace lockstep::store
