#pragma once

#include <lockstep/checkpoint.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::detail {

/// A file in shared memory.
struct SharedFile {
  std::string name;
  std::int64_t offset = 0, size = 0;
};

/// The checkpoint whose files are in shared memory (sys/shared_memory.h), which is opened by `memory` and mapped: its
/// contents are not copied, and stay as long as some copy of the Checkpoint exists. `manifest` is the text of its
/// manifest.json. With `is_fixed`, nobody can change the memory any more, and hashes are not checked again. Throws
/// StorageError if the memory cannot be opened or is too small.
Checkpoint checkpoint_in(const std::filesystem::path& memory, const std::vector<SharedFile>& files,
                         const std::string& manifest, bool is_fixed);

}  // namespace lockstep::detail
