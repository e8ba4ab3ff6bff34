#pragma once

#include <cstdint>
#include <functional>
#include <lockstep/checkpoint.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::store {

/// Arrays as one safetensors file: 8 bytes with the header's length, the header (JSON, padded with spaces so that the
/// data begins at a multiple of 8), then the arrays' bytes without gaps, widest element type first so that each is
/// aligned. Borrows the arrays.
class SafetensorsWriter {
 public:
  /// Throws ConfigError for an unknown type, a name that occurs twice, or bytes that do not fit the shape.
  explicit SafetensorsWriter(std::span<const Tensor> tensors);

  /// Of the whole file.
  std::uint64_t size() const { return size_; }
  /// Passes the file to `sink` in pieces, in order.
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::vector<std::span<const std::byte>> pieces_;
  std::string header_;  ///< including its length
  std::uint64_t size_ = 0;
};

/// The arrays of a file, in the order of their data; they point into `file`. Throws StorageError with `where` for
/// anything but a valid safetensors file: checks lengths, types, shapes, gaps and overlaps.
std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, std::string_view where);

}  // namespace lockstep::store
