#include "base/utf8.h"

namespace lockstep {

std::pair<Utf8, std::size_t> utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8::whole, 1};
  const std::size_t size = lead >= 0xc2 && lead <= 0xdf   ? 2
                           : lead >= 0xe0 && lead <= 0xef ? 3
                           : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                          : 0;
  if (size == 0) return {Utf8::wrong, 1};
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Utf8::cut, i};
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1) {
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (byte(i) < low || byte(i) > high) return {Utf8::wrong, i};
  }
  return {Utf8::whole, size};
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  std::size_t begin = 0;  // start of the valid text that is not copied yet
  for (std::size_t at = 0; at < text.size();) {
    const auto [found, size] = utf8_sequence(text.substr(at));
    if (found != Utf8::whole) {
      out.append(text, begin, at - begin).append(kReplacement);
      begin = at + size;
    }
    at += size;
  }
  return out.append(text, begin);
}

}  // namespace lockstep
