#pragma once

#include <cstdint>
#include <lockstep/value.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An array of numbers among metrics, as numpy and torch know it:
///
///     const std::vector<float> counts = ...;
///     session.report({{"counts", Array{"float32", {2, 3}, memory_of(counts)}}});
///
/// One element is reported as its number. In a Value any other array is bytes of the subtype kArraySubtype, which
/// callbacks read with array_in(); Python's have numpy arrays there. Files hold what summary() gives.
struct Array {
  /// numpy's name: bool, int8 to int64, uint8 to uint64, float16, float32 or float64.
  std::string dtype;
  std::vector<std::int64_t> shape;
  /// The elements in C order, little endian. Borrowed: by the caller, or by the Value that the array was found in.
  std::span<const std::uint8_t> data;
};

/// An array with more elements than this has no values in files.
inline constexpr std::int64_t kMostValuesInFiles = 64;

/// Marks bytes in a Value that are an array; also its tag on the wire.
inline constexpr std::uint64_t kArraySubtype = 0x4c53;

/// The array that a value is; nothing where it is something else. It is valid as long as the value stays as it is.
std::optional<Array> array_in(const Value& value);

/// {"shape": [2, 3], "dtype": "float32", "values": [[...], [...]]}; without "values" beyond kMostValuesInFiles
/// elements.
Value summary(const Array& array);
/// Whether a value, which a file held, is what summary() gives.
bool is_summary(const Value& value);
/// `value` with every array in it replaced by its summary.
Value with_summaries(Value value);

/// So that an Array can stand where a Value is wanted; copies its data. Throws ConfigError for a dtype that is not
/// known or data that are not as long as dtype and shape say.
void to_json(Value& value, const Array& array);

/// The memory of a vector or span of numbers.
template <class Numbers>
std::span<const std::uint8_t> memory_of(const Numbers& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep
