#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The length in bytes of the control character at `at`, including U+0080 to U+009F, which terminals may obey; 0 for
/// any other character.
std::size_t control_length(std::string_view text, std::size_t at);

/// `text` in double quotes with control characters escaped, for messages.
std::string in_quotes(std::string_view text);

/// `text` with each control character replaced by `?`, so that untrusted text cannot control the terminal.
std::string printable(std::string_view text);

/// The number of characters of UTF-8 text.
std::size_t text_length(std::string_view text);
/// The first `length` characters.
std::string first_characters(std::string_view text, std::size_t length);

/// "1, 2 and 3"; "none" for an empty list.
std::string listed(const std::vector<int>& numbers);
/// The items with `separator` between them.
std::string joined(const std::vector<std::string>& items, std::string_view separator);

/// The names sorted by edit distance from `wanted`; equal ones keep their order.
std::vector<std::string> closest_first(std::vector<std::string> names, std::string_view wanted);

/// "1.5 MB" and so on; powers of 1000.
std::string human_size(double bytes);
/// "1.2s", "3m 04s", "2h 10m".
std::string human_duration(double seconds);

}  // namespace lockstep
