#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "store/hash.h"
#include "store/manifest.h"
#include "sys/files.h"

namespace lockstep::store {

/// A new file of a checkpoint: hashes while it writes, and keeps the disk busy meanwhile. Large pieces are not copied.
class HashedFile {
 public:
  /// `file` is new and open for writing. Sets `size` bytes aside, which is what will be written so far as it is known.
  HashedFile(sys::Files& files, sys::OpenFile file, std::uint64_t size);

  void write(std::span<const std::byte> bytes);
  /// Makes the contents durable (not yet the name: sync the directory) and says what they are.
  FileEntry finish(std::string name);

 private:
  void put(std::span<const std::byte> bytes);
  void flush();

  sys::Files& files_;
  sys::OpenFile file_;
  Hasher hasher_;
  std::vector<std::byte> small_;  ///< pieces too small for a system call of their own
  std::uint64_t written_ = 0;
  std::uint64_t started_ = 0;  ///< how far writeback has been asked for
};

/// Size and hash of a file that is there.
FileEntry hash_file(sys::Files& files, const std::filesystem::path& path, std::string name);

}  // namespace lockstep::store
