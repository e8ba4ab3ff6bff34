#pragma once

#include <lockstep/value.h>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::store {

using FileMap = std::map<std::string, Bytes>;

/// Files as one byte string (Checkpoint::to_bytes). Numbers are 64 bits, unsigned, little endian:
///
///     "LSCKPT01"
///     number of files
///     then for each file: length of its name, the name (UTF-8), length of its contents, the contents
Bytes begin_container(std::size_t count);
void append_file(Bytes& container, std::string_view name, std::span<const std::uint8_t> contents);

/// The inverse. Throws StorageError for malformed input: truncated, lengths beyond the end, trailing bytes, a name that
/// is not allowed (see file_name_problem; manifest.json is allowed) or occurs twice.
FileMap read_container(std::span<const std::uint8_t> bytes);

}  // namespace lockstep::store
