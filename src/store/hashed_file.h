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

/// A new file of a checkpoint. Hashes while it writes, and starts writing to disk early. Large pieces are not copied.
class HashedFile {
 public:
  /// `file` is new and open for writing. Reserves `size` bytes, the expected size.
  HashedFile(sys::Files& files, sys::OpenFile file, std::uint64_t size);

  void write(std::span<const std::byte> bytes);
  /// Makes the contents durable and returns their size and hash. The name is durable only after a sync of the
  /// directory.
  FileEntry finish(std::string name);

 private:
  void put(std::span<const std::byte> bytes);
  void flush();

  sys::Files& files_;
  sys::OpenFile file_;
  Hasher hasher_;
  std::vector<std::byte> small_;  ///< collects pieces too small for their own system call
  std::uint64_t written_ = 0;
  std::uint64_t started_ = 0;  ///< offset up to which writeback was requested
};

/// Size and hash of an existing file.
FileEntry hash_file(sys::Files& files, const std::filesystem::path& path, std::string name);

}  // namespace lockstep::store
