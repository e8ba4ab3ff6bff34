#include "agent/text_stream.h"

#include <string_view>
#include <utility>

namespace lockstep::agent {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

enum class Found { whole, cut, wrong };

/// The sequence at the start of `text`: whether it is a character, and how many bytes it takes (wrong: how many to
/// replace by one sign). Table 3-7 of the Unicode standard: neither surrogates nor overlong forms pass.
std::pair<Found, std::size_t> sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Found::whole, 1};
  const std::size_t size = lead >= 0xc2 && lead <= 0xdf   ? 2
                           : lead >= 0xe0 && lead <= 0xef ? 3
                           : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                          : 0;
  if (size == 0) return {Found::wrong, 1};
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Found::cut, i};
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1) {
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (byte(i) < low || byte(i) > high) return {Found::wrong, i};
  }
  return {Found::whole, size};
}

}  // namespace

std::string TextStream::add(std::span<const std::uint8_t> bytes) {
  std::string input = std::exchange(rest_, {});
  input.append(bytes.begin(), bytes.end());
  std::string out;
  out.reserve(input.size());
  std::size_t begin = 0;  // of what is valid and not yet copied
  for (std::size_t at = 0; at < input.size();) {
    const auto [found, size] = sequence(std::string_view(input).substr(at));
    if (found == Found::cut) {
      rest_ = input.substr(at);
      input.resize(at);
      break;
    }
    if (found == Found::wrong) {
      out.append(input, begin, at - begin).append(kReplacement);
      begin = at + size;
    }
    at += size;
  }
  return out.append(input, begin);
}

std::string TextStream::finish() { return std::string(std::exchange(rest_, {}).empty() ? "" : kReplacement); }

}  // namespace lockstep::agent
