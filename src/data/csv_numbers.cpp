#include "data/csv_numbers.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace lockstep::data {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether it may stand within a number.
bool is_of_number(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.';
}

/// The end of the number that begins at `at`, or null. Words like "nan" are none: they may stand for nulls.
template <class Number>
const char* parse_number(const char* at, const char* end, Number& number) {
  const char* first = at != end && *at == '-' ? at + 1 : at;
  if (first == end || !(is_digit(*first) || *first == '.')) return nullptr;
  const auto [stop, error] = std::from_chars(at, end, number);
  return error == std::errc() ? stop : nullptr;
}

template <class Number>
const char* parse_into(const char* at, const char* end, std::byte* column, std::int64_t row) {
  return parse_number(at, end, reinterpret_cast<Number*>(column)[row]);
}

/// The end of a field that is not wanted, or null if it has to be looked at closely.
const char* skip_field(const char* at, const char* end, const RowRules& rules) {
  for (; at != end && *at != rules.delimiter && *at != '\n' && *at != '\r'; ++at)
    if (*at == rules.quote || *at == rules.escape) return nullptr;
  return at;
}

const char* parse_field(const char* at, const char* end, const NumberField& field, std::int64_t row,
                        const RowRules& rules) {
  if (field.into == nullptr) return skip_field(at, end, rules);
  switch (field.type) {
    case NumberField::Type::float64:
      return parse_into<double>(at, end, field.into, row);
    case NumberField::Type::float32:
      return parse_into<float>(at, end, field.into, row);
    case NumberField::Type::int64:
      return parse_into<std::int64_t>(at, end, field.into, row);
    case NumberField::Type::int32:
      return parse_into<std::int32_t>(at, end, field.into, row);
  }
  return nullptr;
}

}  // namespace

bool can_parse_numbers(const RowRules& rules, const std::vector<std::string>& null_values) {
  const auto is_number = [](const std::string& text) {
    double ignored = 0;
    const char* end = text.data() + text.size();
    const char* first = text.starts_with('-') ? text.data() + 1 : text.data();
    // Also numbers that are too large: as integers they may not be.
    return first != end && (is_digit(*first) || *first == '.') && std::from_chars(text.data(), end, ignored).ptr == end;
  };
  return !is_of_number(rules.delimiter) && !is_of_number(rules.quote) && !is_of_number(rules.escape) &&
         std::none_of(null_values.begin(), null_values.end(), is_number);
}

bool parse_numbers(std::string_view text, std::int64_t rows, const std::vector<NumberField>& fields,
                   const RowRules& rules) {
  const char *at = text.data(), *const end = at + text.size();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::size_t n = 0; n < fields.size(); ++n) {
      if (n > 0 && (at == end || *at++ != rules.delimiter)) return false;
      at = parse_field(at, end, fields[n], row, rules);
      if (at == nullptr) return false;
    }
    if (at == end) return row + 1 == rows;  // the last line break may be missing
    if (*at == '\r') ++at;
    if (at == end || *at++ != '\n') return false;
  }
  return at == end;
}

}  // namespace lockstep::data
