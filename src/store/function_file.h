#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "sys/files.h"

namespace lockstep::store {

/// Files of at least this size are shared between the runs of a storage path.
inline constexpr std::size_t kSharedFunction = std::size_t{1} << 20;

/// Writes function.pkl in the run directory `run`. A power cut before run.json is written may undo it. A large file is
/// a hard link to `<storage_path>/.lockstep/functions/<sha256>.pkl`, so that equal contents are stored once for any
/// number of runs. If the file system does not support links, or that directory belongs to somebody else, it is a
/// separate file. `sha256` is that of `bytes`, in hexadecimal; if it is empty, nothing is shared. Nothing is written if
/// the file already has these contents.
void write_function(sys::Files& files, const std::filesystem::path& run, std::span<const std::uint8_t> bytes,
                    const std::string& sha256);

/// A run's function.pkl, and its SHA-256 according to run.json, in hexadecimal digits: none in runs of earlier
/// versions, two if the file was being replaced.
struct SavedFunction {
  std::vector<std::uint8_t> bytes;
  std::vector<std::string> sha256;
};

/// Throws StorageError if there is none, or if other users own or can write the run directory or one of the files.
SavedFunction read_function(const std::filesystem::path& run);

/// Removes the shared functions of a storage path that no run directory uses any more. Returns the number of bytes
/// freed. write_function() calls it when it shares a new file; call it after removing run directories.
std::uint64_t remove_unused_functions(const std::filesystem::path& storage_path, sys::Files& files = sys::files());

}  // namespace lockstep::store
