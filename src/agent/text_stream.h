#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::agent {

/// Makes valid UTF-8 of a stream of bytes that is cut anywhere: a character that is not whole yet waits for its rest,
/// bytes that are no UTF-8 become U+FFFD. Holds at most three bytes.
class TextStream {
 public:
  /// The text that `bytes` complete.
  std::string add(std::span<const std::uint8_t> bytes);
  /// The end of the stream: what waits will never be whole.
  std::string finish();

 private:
  std::string rest_;
};

}  // namespace lockstep::agent
