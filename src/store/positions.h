#pragma once

#include <cstdint>
#include <lockstep/value.h>
#include <span>

namespace lockstep::store {

/// The file of a checkpoint that holds where its data sets were: {"version": 1, "datasets": {NAME: STATE}}. Lockstep
/// alone writes it.
inline constexpr const char* kPositionsName = "lockstep.json";

/// The contents of the file; `datasets` is an object of states by name.
Bytes encode_positions(const Value& datasets);

/// The states by name. Throws StorageError if the contents are not those of such a file.
Value decode_positions(std::span<const std::uint8_t> contents);

}  // namespace lockstep::store
