#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Appends `value` as one line of JSON, as Python's json module writes it: NaN, Infinity and -Infinity are written as
/// those words, floats with the fewest digits that read back equal. Bytes become a list of numbers, arrays their
/// summary (lockstep/array.h); invalid UTF-8 is replaced.
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

/// Throws StorageError if JSON text is nested deeper than kMaxJsonDepth, because its parser recurses.
void check_json_depth(std::string_view text, std::string_view where);

/// Reads JSON, and the words that append_json writes. Throws StorageError with `where` and the position; also when it
/// is nested too deeply or not UTF-8.
Value parse_json(std::string_view text, std::string_view where);

/// Returns read(value) for a value from a file. Throws StorageError with `where` if it has a type that `read` does not
/// expect.
template <class Read>
auto read_as_written(std::string_view where, Read&& read) {
  try {
    return read();
  } catch (const Value::exception& error) {
    throw StorageError("[json] " + std::string(where) + " is not what Lockstep writes: " + error.what());
  }
}

/// The number at `key` of a dict, converted to T; 0 if there is none.
template <class T>
T number_in(const Value& dict, const char* key) {
  const auto found = dict.find(key);
  return found != dict.end() && found->is_number() ? found->template get<T>() : T{};
}

/// Null for a number that is not above 0 or an empty text, which stand for something unknown.
inline Value or_null(int number) { return number > 0 ? Value(number) : Value(nullptr); }
inline Value or_null(double number) { return number > 0 ? Value(number) : Value(nullptr); }
inline Value or_null(const std::string& text) { return text.empty() ? Value(nullptr) : Value(text); }

/// The value at `key`. If there is none and the key has slashes, the value at that path of nested dicts; otherwise
/// null.
const Value* find_path(const Value& object, const std::string& key);
/// The value as a number, if it is one; true is 1, and NaN is a number.
std::optional<double> number_of(const Value& value);
/// The number that find_path() finds, if there is one.
std::optional<double> number_at(const Value& object, const std::string& key);

}  // namespace lockstep
