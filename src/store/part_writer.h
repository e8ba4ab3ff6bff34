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

/// A dict checkpoint taken apart; everything is borrowed.
struct DictParts {
  std::string_view data;                              ///< data.json's text
  std::span<const Tensor> tensors;                    ///< for tensors.safetensors; none: no such file
  std::optional<std::span<const std::byte>> objects;  ///< for objects.pkl
};

/// The same as files of a Checkpoint in memory.
std::vector<std::pair<std::string, Bytes>> to_files(const DictParts& parts);

/// Writes one rank's part of a checkpoint into a `.partial` directory, which other ranks may be writing into as well.
///
/// The files that a function returns are durable, with their names. A file name that is not allowed (see
/// file_name_problem) throws ConfigError before anything is written; the rest throws StorageError, and leaves what was
/// written to RunDirectory::remove_partials(). A name that another rank has taken is no error here: the file is left
/// alone and its entry has an empty hash, from which merge_parts(), which knows the ranks, makes an error.
class PartWriter {
 public:
  /// `directory` is made when it is not there; the one above it must be.
  PartWriter(sys::Files& files, std::filesystem::path directory) : files_(files), directory_(std::move(directory)) {}

  std::vector<FileEntry> write_files(std::span<const MemoryFile> contents);
  std::vector<FileEntry> write_dict(const DictParts& parts);
  /// Copies the files below `source`. Links are followed inside it; one that leads out of it, a pipe or a device is an
  /// error. A committed checkpoint can be copied: its manifest is left out, and its hashes must be right. When this
  /// throws, the files that it made are gone again: another checkpoint may take their place.
  std::vector<FileEntry> copy_directory(const std::filesystem::path& source);

 private:
  /// Makes the directories on the way to `name` and creates the file there; `fill` writes it.
  template <typename Fill>
  FileEntry write_one(const std::string& name, std::uint64_t size, Fill fill);
  std::vector<FileEntry> copy(const std::filesystem::path& source);
  void sync_directories();

  sys::Files& files_;
  const std::filesystem::path directory_;
  std::set<std::filesystem::path> directories_;  ///< those that new names were put into
  std::vector<std::filesystem::path> made_;      ///< the files
};

}  // namespace lockstep::store
