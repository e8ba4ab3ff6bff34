#pragma once

#include <cstdint>
#include <lockstep/value.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An array of numbers in metrics, as in numpy and torch:
///
///     const std::vector<float> counts = ...;
///     session.report({{"counts", Array{"float32", {2, 3}, memory_of(counts)}}});
///
/// An array of one element is reported as its number. Any other array is stored in a Value as bytes of the subtype
/// kArraySubtype. C++ callbacks read it with array_in(); Python callbacks get a numpy array. Files hold the result of
/// summary().
struct Array {
  /// numpy's name: bool, int8 to int64, uint8 to uint64, float16, float32 or float64.
  std::string dtype;
  std::vector<std::int64_t> shape;
  /// The elements in C order, little endian. Borrowed: the caller, or the Value that the array was found in, owns them.
  std::span<const std::uint8_t> data;
};

/// An array with more elements than this has no values in files.
inline constexpr std::int64_t kMostValuesInFiles = 64;

/// Marks bytes in a Value that are an array; also its tag on the wire.
inline constexpr std::uint64_t kArraySubtype = 0x4c53;

/// The array that `value` holds, or nothing if it is something else. Valid until the value changes.
std::optional<Array> array_in(const Value& value);

/// {"shape": [2, 3], "dtype": "float32", "values": [[...], [...]]}; without "values" beyond kMostValuesInFiles
/// elements.
Value summary(const Array& array);
/// Whether `value`, read from a file, has the form that summary() gives.
bool is_summary(const Value& value);
/// `value` with every array in it replaced by its summary.
Value with_summaries(Value value);

/// Converts an Array to a Value; copies its data. Throws ConfigError for an unknown dtype, or if the data's length does
/// not match dtype and shape.
void to_json(Value& value, const Array& array);

/// The memory of a vector or span of numbers.
template <class Numbers>
std::span<const std::uint8_t> memory_of(const Numbers& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep
