#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Appends `value` as one line of JSON, as Python's json module writes it: NaN, Infinity and -Infinity stand as those
/// words, floats keep the shortest digits that read back equal. Bytes become a list of numbers, arrays their summary
/// (lockstep/array.h); invalid UTF-8 is replaced.
void append_json(std::string& out, const Value& value);
/// The same as a new string.
std::string to_json(const Value& value);
/// Several lines, two spaces a level, for people.
std::string to_pretty_json(const Value& value);

/// Appends one number or one quoted string, as append_json would.
void append_json_number(std::string& out, double number);
void append_json_string(std::string& out, std::string_view text);

/// The deepest nesting that is written or read; Python's json module gives up at about 1000.
inline constexpr int kMaxJsonDepth = 500;

/// Throws StorageError when JSON text is nested deeper than kMaxJsonDepth: what reads it recurses.
void check_json_depth(std::string_view text, std::string_view where);

/// Reads JSON, and the words that append_json writes. Throws StorageError with `where` and the position; also when it
/// is nested too deeply or not UTF-8.
Value parse_json(std::string_view text, std::string_view where);

/// What `read` makes of a value from a file; StorageError with `where` when it finds a type that it did not expect.
template <class Read>
auto read_as_written(std::string_view where, Read&& read) {
  try {
    return read();
  } catch (const Value::exception& error) {
    throw StorageError("[json] " + std::string(where) + " is not what Lockstep writes: " + error.what());
  }
}

/// The number at `key` of a dict, cut to a T; 0 when there is none.
template <class T>
T number_in(const Value& dict, const char* key) {
  const auto found = dict.find(key);
  return found != dict.end() && found->is_number() ? found->template get<T>() : T{};
}

/// The value at `key`; where there is none and the key has slashes, at that path of nested dicts; else null.
const Value* find_path(const Value& object, const std::string& key);
/// The number that find_path() finds, where there is one; true is 1.
std::optional<double> number_at(const Value& object, const std::string& key);

}  // namespace lockstep
