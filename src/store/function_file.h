#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "sys/files.h"

namespace lockstep::store {

/// From this size on, runs below one storage path share the file.
inline constexpr std::size_t kSharedFunction = std::size_t{1} << 20;

/// Writes function.pkl in the run directory `run`, durably. A large one is a hard link to
/// `<storage_path>/.lockstep/functions/<sha256>.pkl`, so that equal contents lie on the disk once, whatever number of
/// runs there is; where the file system does not link, or somebody else made that directory, it is a file of its own.
/// `sha256` is of `bytes`, in hexadecimal digits; empty: nothing is shared. Nothing is written when the file has these
/// contents already.
void write_function(sys::Files& files, const std::filesystem::path& run, std::span<const std::uint8_t> bytes,
                    const std::string& sha256);

/// Removes the shared functions of a storage path that are in no run directory any more. Returns how many bytes that
/// freed. write_function() calls it when it shares a new one; call it when run directories were removed.
std::uint64_t remove_unused_functions(const std::filesystem::path& storage_path, sys::Files& files = sys::files());

}  // namespace lockstep::store
