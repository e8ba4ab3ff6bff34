#include "agent/text_stream.h"

#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace lockstep::agent {

std::string TextStream::add(std::span<const std::uint8_t> bytes) {
  std::string input = std::exchange(rest_, {});
  input.append(bytes.begin(), bytes.end());
  std::string out;
  out.reserve(input.size());
  std::size_t begin = 0;  // of what is valid and not yet copied
  for (std::size_t at = 0; at < input.size();) {
    const auto [found, size] = utf8_sequence(std::string_view(input).substr(at));
    if (found == Utf8::cut) {
      rest_ = input.substr(at);
      input.resize(at);
      break;
    }
    if (found == Utf8::wrong) {
      out.append(input, begin, at - begin).append(kReplacement);
      begin = at + size;
    }
    at += size;
  }
  return out.append(input, begin);
}

std::string TextStream::finish() { return std::string(std::exchange(rest_, {}).empty() ? "" : kReplacement); }

}  // namespace lockstep::agent
