#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::agent {

/// Converts a stream of bytes, split anywhere, to valid UTF-8: an incomplete character waits for its rest, and invalid
/// bytes become U+FFFD. Holds at most three bytes.
class TextStream {
 public:
  /// The text that `bytes` complete.
  std::string add(std::span<const std::uint8_t> bytes);
  /// The end of the stream: an incomplete character will not be completed.
  std::string finish();

 private:
  std::string rest_;
};

}  // namespace lockstep::agent
