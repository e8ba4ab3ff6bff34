#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/lines.h"

/// Rows of CSV that are nothing but numbers. Arrow's parser first finds the fields, then converts them; of numbers,
/// both can be done at once, in half the time.
namespace lockstep::data {

/// A column of the file.
struct NumberField {
  enum class Type { float64, float32, int64, int32 };
  Type type = Type::float64;
  std::byte* into = nullptr;  ///< room for all rows; null: the column is not wanted
};

/// Whether numbers in files with these rules and marks of nulls can be told from everything else.
bool can_parse_numbers(const RowRules& rules, const std::vector<std::string>& null_values);

/// Parses `rows` rows, which are all of `text`. False if anything is not just as expected: a field that is empty,
/// quoted or no number, a row of another length, an empty line. What was written then means nothing, and whoever knows
/// all rules has to read the text. The rules must have passed can_parse_numbers().
bool parse_numbers(std::string_view text, std::int64_t rows, const std::vector<NumberField>& fields,
                   const RowRules& rules);

}  // namespace lockstep::data
