#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::metrics {

/// CRC-32C (Castagnoli) of `bytes`, by the processor's instruction if it has one.
std::uint32_t crc32c(std::string_view bytes);
/// The same by tables, on any processor.
std::uint32_t crc32c_portable(std::string_view bytes);
/// The same by the instruction; call it only if has_crc32c_instruction() is true.
std::uint32_t crc32c_instruction(std::string_view bytes);
bool has_crc32c_instruction();

}  // namespace lockstep::metrics
