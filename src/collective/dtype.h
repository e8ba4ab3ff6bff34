#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::collective {

/// The element type of a buffer. `boolean` is one byte, 0 or 1.
enum class DType : std::uint8_t {
  float32,
  float64,
  bfloat16,
  float16,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
};
inline constexpr int kDTypes = 13;

/// How elements of several ranks become one, in the order of the ranks:
/// - floating point: `avg` is the sum divided once; `min` and `max` give NaN if there is one; bfloat16 and float16 are
///   computed in float32 and rounded once, to nearest even.
/// - integers: `sum` and `product` wrap; `avg` is the wrapped sum divided, towards zero.
/// - boolean: `sum`, `max` and `bit_or` are "any", `product`, `min` and `bit_and` are "all"; there is no `avg`.
/// The `bit_` ones are for integers and boolean.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product, bit_and, bit_or, bit_xor };
inline constexpr int kReduceOps = 8;

/// Bytes of one element.
std::size_t size_of(DType dtype);
std::string_view to_string(DType dtype);
std::string_view to_string(ReduceOp op);
/// Whether `op` is defined for `dtype`.
bool supported(DType dtype, ReduceOp op);

}  // namespace lockstep::collective
