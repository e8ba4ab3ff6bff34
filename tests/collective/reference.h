#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collective/dtype.h"

// Plain arithmetic, one element at a time, against which the collectives are held.

namespace lockstep::collective {

using Bytes = std::vector<std::byte>;

inline bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16 || dtype == DType::float16;
}

inline bool is_signed(DType dtype) {
  return dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64;
}

template <class T>
T read_as(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

/// The bits of an element, zero-extended.
inline std::uint64_t bits_at(const Bytes& bytes, DType dtype, std::size_t index) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size_of(dtype), size_of(dtype));
  return bits;
}

/// A floating-point format by its fields.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline Format format_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {5, 10};
    case DType::bfloat16:
      return {8, 7};
    case DType::float32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

inline double decode(std::uint64_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits);
  return sign *
         (exponent == 0 ? std::ldexp(fraction, 1 - format.bias()) : std::ldexp(1 + fraction, exponent - format.bias()));
}

/// The nearest number of the format, to even in the middle; `value` is a finite or infinite double.
inline std::uint64_t encode(double value, DType dtype) {
  const Format format = format_of(dtype);
  const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (format.mantissa_bits + format.exponent_bits);
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  value = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  int exponent = std::max(std::ilogb(value), 1 - format.bias());
  const double units = std::nearbyint(std::ldexp(value, format.mantissa_bits - exponent));
  // As an integer the format counts its numbers from 0 upwards, through the exponents.
  const std::uint64_t rank = static_cast<std::uint64_t>(units) +
                             (static_cast<std::uint64_t>(exponent + format.bias() - 1) << format.mantissa_bits);
  return sign | std::min(rank, infinity);
}

/// What the elements with these bits, in the order of the ranks, must become. `nodes` are the numbers of ranks per
/// node: each node's elements are combined first, then what the nodes have.
inline std::uint64_t expected_bits(const std::vector<std::uint64_t>& elements, DType dtype, ReduceOp op,
                                   const std::vector<int>& nodes) {
  const std::size_t world = elements.size();
  if (is_float(dtype)) {
    if (world == 1) return elements[0];
    // float64 is computed in itself, all others in float32: what double gives, rounded after every step.
    const bool wide = dtype == DType::float64;
    const auto combined = [&](const std::vector<double>& values) {
      double sum = values[0];
      for (std::size_t i = 1; i < values.size(); ++i) {
        const double next = values[i];
        if (op == ReduceOp::min)
          sum = std::isnan(sum) || sum < next ? sum : next;
        else if (op == ReduceOp::max)
          sum = std::isnan(sum) || sum > next ? sum : next;
        else
          sum = op == ReduceOp::product ? sum * next : sum + next;
        if (!wide) sum = static_cast<float>(sum);
      }
      return sum;
    };
    std::vector<double> of_nodes;
    std::size_t rank = 0;
    for (const int size : nodes) {
      std::vector<double> values;
      for (int i = 0; i < size; ++i) values.push_back(decode(elements[rank++], dtype));
      of_nodes.push_back(combined(values));
    }
    double sum = combined(of_nodes);
    if (op == ReduceOp::avg) sum /= static_cast<double>(world);
    if (!wide) sum = static_cast<float>(sum);
    return encode(sum, dtype);
  }
  const int width = static_cast<int>(size_of(dtype)) * 8;
  const auto extend = [&](std::uint64_t bits) {
    const int shift = 64 - width;
    return is_signed(dtype) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift)
                            : bits << shift >> shift;
  };
  const auto less = [&](std::uint64_t a, std::uint64_t b) {
    return is_signed(dtype) ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  };
  if (dtype == DType::boolean) {
    if (op == ReduceOp::sum) op = ReduceOp::bit_or;
    if (op == ReduceOp::product) op = ReduceOp::bit_and;
  }
  std::uint64_t result = extend(elements[0]);
  for (std::size_t i = 1; i < world; ++i) {
    const std::uint64_t next = extend(elements[i]);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result = extend(result + next);
        break;
      case ReduceOp::product:
        result = extend(result * next);
        break;
      case ReduceOp::min:
        result = less(next, result) ? next : result;
        break;
      case ReduceOp::max:
        result = less(result, next) ? next : result;
        break;
      case ReduceOp::bit_and:
        result &= next;
        break;
      case ReduceOp::bit_or:
        result |= next;
        break;
      case ReduceOp::bit_xor:
        result ^= next;
        break;
    }
  }
  if (op == ReduceOp::avg)
    result = is_signed(dtype)
                 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(result) / static_cast<std::int64_t>(world))
                 : result / world;
  return width == 64 ? result : result & ((std::uint64_t{1} << width) - 1);
}

/// Elements with values of all sizes, the same for the same seed.
inline Bytes random_elements(std::size_t count, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(dtype));
  std::uniform_real_distribution<double> value(-1, 1);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    if (is_float(dtype)) bits = encode(std::ldexp(value(random), static_cast<int>(bits % 13) - 6), dtype);
    if (dtype == DType::boolean) bits &= 1;
    std::memcpy(bytes.data() + i * size_of(dtype), &bits, size_of(dtype));
  }
  return bytes;
}

/// What `inputs`, one of every rank, must become.
inline Bytes expected_elements(const std::vector<Bytes>& inputs, DType dtype, ReduceOp op,
                               std::vector<int> nodes = {}) {
  if (nodes.empty()) nodes.push_back(static_cast<int>(inputs.size()));
  Bytes result(inputs[0].size());
  std::vector<std::uint64_t> elements(inputs.size());
  for (std::size_t i = 0; i < result.size() / size_of(dtype); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) elements[rank] = bits_at(inputs[rank], dtype, i);
    const std::uint64_t bits = expected_bits(elements, dtype, op, nodes);
    std::memcpy(result.data() + i * size_of(dtype), &bits, size_of(dtype));
  }
  return result;
}

}  // namespace lockstep::collective
