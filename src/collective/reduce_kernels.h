#pragma once

// The kernels of reduce(), compiled once for every instruction set: reduce_portable.cpp and reduce_avx2.cpp include
// this file with different compiler flags. Everything has internal linkage, and no inline function of the standard
// library is called: the linker must never use code compiled for one instruction set in the other.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "collective/dtype.h"

namespace lockstep::collective {
namespace {

// NOLINTNEXTLINE(misc-definitions-in-headers): one for each instruction set is the point
constexpr std::size_t kBlock = 512;  ///< elements per block, so that their accumulators stay in the first-level cache

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};
struct Boolean {
  std::uint8_t byte;
};

template <class To, class From>
To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// ---- elements: the type that is computed in, and the way there and back -------------------------------------------

template <class T>
struct Element {
  using Acc = T;
  static Acc load(T value) { return value; }
  static T store(Acc value) { return value; }
};

template <>
struct Element<Boolean> {
  using Acc = std::uint8_t;
  static Acc load(Boolean value) { return value.byte != 0; }
  static Boolean store(Acc value) { return {value}; }
};

template <>
struct Element<BFloat16> {
  using Acc = float;
  static Acc load(BFloat16 value) { return as<float>(static_cast<std::uint32_t>(value.bits) << 16); }
  static BFloat16 store(Acc value) {
    const auto bits = as<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
    return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded)};
  }
};

template <>
struct Element<Float16> {
  using Acc = float;
#if defined(__F16C__)
  static Acc load(Float16 value) { return _cvtsh_ss(value.bits); }
  static Float16 store(Acc value) { return {_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)}; }
#else
  static Acc load(Float16 value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
    const std::uint32_t rest = value.bits & 0x7fffU;
    if (rest > 0x7c00U) return as<float>(sign | 0x7fc00000U | (rest << 13));
    if (rest == 0x7c00U) return as<float>(sign | 0x7f800000U);
    // Moved into float32's exponent field it is too small by 2^112; subnormals come out right as well.
    return as<float>(sign | as<std::uint32_t>(as<float>(rest << 13) * as<float>(0x77800000U)));
  }
  static Float16 store(Acc value) {
    const auto bits = as<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t size = bits & 0x7fffffffU;
    std::uint32_t result;
    if (size > 0x7f800000U) {
      result = 0x7e00U | ((size >> 13) & 0x3ffU);
    } else if (size >= 0x477ff000U) {  // rounds to 65520 or more: infinity
      result = 0x7c00U;
    } else if (size < 0x38800000U) {  // subnormal or zero: adding 0.5 puts the last place at 2^-24 and rounds
      result = as<std::uint32_t>(as<float>(size) + 0.5F) - 0x3f000000U;
    } else {
      result = (size - 0x38000000U + 0xfffU + ((size >> 13) & 1U)) >> 13;
    }
    return {static_cast<std::uint16_t>(sign | result)};
  }
#endif
};

template <class T>
void load_block(typename Element<T>::Acc* to, const T* from, std::size_t count) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    for (; count >= 8; count -= 8, to += 8, from += 8)
      _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
#endif
  for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::load(from[i]);
}

template <class T>
void store_block(T* to, const typename Element<T>::Acc* from, std::size_t count) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    for (; count >= 8; count -= 8, to += 8, from += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (std::size_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i]);
}

// ---- operations ---------------------------------------------------------------------------------------------------

/// Unsigned and at least as wide as `unsigned`: arithmetic that wraps instead of being undefined.
template <class A>
using Wrapping = std::conditional_t<(sizeof(A) < 4), std::uint32_t, std::make_unsigned_t<A>>;

template <class A, ReduceOp Op>
A combine(A a, A b) {
  if constexpr (Op == ReduceOp::sum || Op == ReduceOp::avg) {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<Wrapping<A>>(a) + static_cast<Wrapping<A>>(b));
    else
      return a + b;
  } else if constexpr (Op == ReduceOp::product) {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
    else
      return a * b;
  } else if constexpr (Op == ReduceOp::min) {
    return ((a < b) | (a != a)) ? a : b;
  } else if constexpr (Op == ReduceOp::max) {
    return ((a > b) | (a != a)) ? a : b;
  } else if constexpr (Op == ReduceOp::bit_and) {
    return static_cast<A>(a & b);
  } else if constexpr (Op == ReduceOp::bit_or) {
    return static_cast<A>(a | b);
  } else {
    return static_cast<A>(a ^ b);
  }
}

template <class A, ReduceOp Op>
A finish(A value, std::size_t ranks) {
  if constexpr (Op != ReduceOp::avg) {
    return value;
  } else if constexpr (!std::is_integral_v<A>) {
    return value / static_cast<A>(ranks);
  } else if constexpr (std::is_signed_v<A>) {
    return static_cast<A>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(ranks));
  } else {
    return static_cast<A>(static_cast<std::uint64_t>(value) / ranks);
  }
}

// ---- loops --------------------------------------------------------------------------------------------------------
// `ivdep`: an output that is one of the inputs is read and written at the same index only.

/// Few inputs: one pass.
template <class T, ReduceOp Op, std::size_t Buffers>
void reduce_few(T* out, const void* const* in, std::size_t count, std::size_t ranks) {
  using E = Element<T>;
  using Acc = typename E::Acc;
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T* c = static_cast<const T*>(in[Buffers > 2 ? 2 : 0]);
  const T* d = static_cast<const T*>(in[Buffers > 3 ? 3 : 0]);
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    Acc sum = combine<Acc, Op>(E::load(a[i]), E::load(b[i]));
    if constexpr (Buffers > 2) sum = combine<Acc, Op>(sum, E::load(c[i]));
    if constexpr (Buffers > 3) sum = combine<Acc, Op>(sum, E::load(d[i]));
    out[i] = E::store(finish<Acc, Op>(sum, ranks));
  }
}

/// Any number of inputs of type From, block by block: From is T, or T's accumulator.
template <class T, class From, ReduceOp Op>
void reduce_blocks(T* out, const void* const* in, std::size_t buffers, std::size_t count, std::size_t ranks) {
  using Acc = typename Element<T>::Acc;
  alignas(64) Acc sum[kBlock];
  alignas(64) Acc next[kBlock];
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t size = count - start < kBlock ? count - start : kBlock;
    load_block(sum, static_cast<const From*>(in[0]) + start, size);
    for (std::size_t buffer = 1; buffer < buffers; ++buffer) {
      const From* from = static_cast<const From*>(in[buffer]) + start;
      if constexpr (std::is_same_v<From, Acc>) {
        for (std::size_t i = 0; i < size; ++i) sum[i] = combine<Acc, Op>(sum[i], from[i]);
      } else {
        load_block(next, from, size);
        for (std::size_t i = 0; i < size; ++i) sum[i] = combine<Acc, Op>(sum[i], next[i]);
      }
    }
    for (std::size_t i = 0; i < size; ++i) sum[i] = finish<Acc, Op>(sum[i], ranks);
    store_block(out + start, sum, size);
  }
}

template <class T, class From, ReduceOp Op>
void reduce_as(void* out, const void* const* in, std::size_t buffers, std::size_t count, std::size_t ranks) {
  if constexpr (std::is_same_v<T, From> && !std::is_same_v<T, Float16>) {
    if (buffers == 2) return reduce_few<T, Op, 2>(static_cast<T*>(out), in, count, ranks);
    if (buffers == 3) return reduce_few<T, Op, 3>(static_cast<T*>(out), in, count, ranks);
    if (buffers == 4) return reduce_few<T, Op, 4>(static_cast<T*>(out), in, count, ranks);
  }
  reduce_blocks<T, From, Op>(static_cast<T*>(out), in, buffers, count, ranks);
}

template <class T>
void widen_as(float* out, const void* in, std::size_t count) {
  load_block(out, static_cast<const T*>(in), count);
}

using Kernel = void (*)(void* out, const void* const* in, std::size_t buffers, std::size_t count, std::size_t ranks);

template <class T, class From>
Kernel kernel_from(ReduceOp op) {
  constexpr bool kIsBoolean = std::is_same_v<T, Boolean>;
  constexpr bool kHasBits = kIsBoolean || std::is_integral_v<T>;
  switch (op) {
    case ReduceOp::sum:
      return kIsBoolean ? reduce_as<T, From, ReduceOp::max> : reduce_as<T, From, ReduceOp::sum>;
    case ReduceOp::product:
      return kIsBoolean ? reduce_as<T, From, ReduceOp::min> : reduce_as<T, From, ReduceOp::product>;
    case ReduceOp::avg:
      if constexpr (!kIsBoolean) return reduce_as<T, From, ReduceOp::avg>;
      break;
    case ReduceOp::min:
      return reduce_as<T, From, ReduceOp::min>;
    case ReduceOp::max:
      return reduce_as<T, From, ReduceOp::max>;
    case ReduceOp::bit_and:
      if constexpr (kHasBits) return reduce_as<T, From, ReduceOp::bit_and>;
      break;
    case ReduceOp::bit_or:
      if constexpr (kHasBits) return reduce_as<T, From, ReduceOp::bit_or>;
      break;
    case ReduceOp::bit_xor:
      if constexpr (kHasBits) return reduce_as<T, From, ReduceOp::bit_xor>;
      break;
  }
  return nullptr;
}

/// With `Partial`, bfloat16 and float16 are made of float32.
template <class T, bool Partial>
Kernel kernel_of(ReduceOp op) {
  if constexpr (Partial && sizeof(T) != sizeof(typename Element<T>::Acc))
    return kernel_from<T, typename Element<T>::Acc>(op);
  else
    return kernel_from<T, T>(op);
}

/// Null: the elements are not narrower than what they are combined in.
// NOLINTNEXTLINE(misc-definitions-in-headers): one for each instruction set is the point
void (*find_widen_kernel(DType dtype))(float*, const void*, std::size_t) {
  if (dtype == DType::bfloat16) return widen_as<BFloat16>;
  if (dtype == DType::float16) return widen_as<Float16>;
  return nullptr;
}

/// Null: there is no such operation on such elements.
// NOLINTNEXTLINE(misc-definitions-in-headers): one for each instruction set is the point
template <bool Partial>
Kernel find_kernel(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::float32:
      return kernel_of<float, Partial>(op);
    case DType::float64:
      return kernel_of<double, Partial>(op);
    case DType::bfloat16:
      return kernel_of<BFloat16, Partial>(op);
    case DType::float16:
      return kernel_of<Float16, Partial>(op);
    case DType::int8:
      return kernel_of<std::int8_t, Partial>(op);
    case DType::int16:
      return kernel_of<std::int16_t, Partial>(op);
    case DType::int32:
      return kernel_of<std::int32_t, Partial>(op);
    case DType::int64:
      return kernel_of<std::int64_t, Partial>(op);
    case DType::uint8:
      return kernel_of<std::uint8_t, Partial>(op);
    case DType::uint16:
      return kernel_of<std::uint16_t, Partial>(op);
    case DType::uint32:
      return kernel_of<std::uint32_t, Partial>(op);
    case DType::uint64:
      return kernel_of<std::uint64_t, Partial>(op);
    case DType::boolean:
      return kernel_of<Boolean, Partial>(op);
  }
  return nullptr;
}

}  // namespace
}  // namespace lockstep::collective
