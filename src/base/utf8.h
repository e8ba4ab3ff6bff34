#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Replaces bytes that are not UTF-8: U+FFFD.
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

enum class Utf8 { whole, cut, wrong };

/// The sequence at the start of `text`, which is not empty: whether it is a character, and its number of bytes (if
/// invalid: how many to replace by one U+FFFD). Follows table 3-7 of the Unicode standard: surrogates and overlong
/// forms are invalid.
std::pair<Utf8, std::size_t> utf8_sequence(std::string_view text);

/// `text` with every invalid sequence replaced, so that one bad string cannot make a file unreadable.
std::string valid_utf8(std::string_view text);

}  // namespace lockstep
