#pragma once

#include <cstddef>
#include <cstring>

namespace lockstep::collective {

inline std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }
inline const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace lockstep::collective
