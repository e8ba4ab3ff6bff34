#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// What stands for bytes that are no UTF-8: U+FFFD.
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

enum class Utf8 { whole, cut, wrong };

/// The sequence at the start of `text`, which is not empty: whether it is a character, and how many bytes it takes
/// (wrong: how many to replace by one sign). Table 3-7 of the Unicode standard: neither surrogates nor overlong forms
/// pass.
std::pair<Utf8, std::size_t> utf8_sequence(std::string_view text);

/// `text` with every sequence that is no UTF-8 replaced: one bad string must not make a file unreadable.
std::string valid_utf8(std::string_view text);

}  // namespace lockstep
