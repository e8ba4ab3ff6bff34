#include "collective/reduce.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>
#include <limits>
#include <string>

#include "reference.h"

namespace lockstep::collective {
namespace {

std::vector<const void*> pointers(const std::vector<Bytes>& inputs) {
  std::vector<const void*> result;
  for (const auto& input : inputs) result.push_back(input.data());
  return result;
}

class EveryDType : public ::testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }
};

TEST_P(EveryDType, MatchesPlainArithmeticBitForBit) {
  for (int o = 0; o < kReduceOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!supported(dtype(), op)) continue;
    for (const int ranks : {1, 2, 3, 4, 5, 9}) {
      for (const std::size_t count : {0, 1, 7, 63, 511, 512, 513, 1500}) {
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < ranks; ++rank) inputs.push_back(random_elements(count, dtype(), rank * 1000 + count));
        const Bytes expected = expected_elements(inputs, dtype(), op);
        Bytes out(expected.size()), portable(expected.size());
        reduce(out.data(), pointers(inputs), count, dtype(), op);
        reduce_portable(portable.data(), pointers(inputs), count, dtype(), op);
        ASSERT_EQ(out, expected) << to_string(op) << " of " << ranks << " x " << count;
        ASSERT_EQ(portable, expected) << to_string(op) << " of " << ranks << " x " << count;
      }
    }
  }
}

TEST_P(EveryDType, TheOutputMayBeAnInput) {
  for (const int ranks : {2, 3}) {
    for (int output = 0; output < ranks; ++output) {
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < ranks; ++rank) inputs.push_back(random_elements(1001, dtype(), rank));
      const Bytes expected = expected_elements(inputs, dtype(), ReduceOp::sum);
      reduce(inputs[output].data(), pointers(inputs), 1001, dtype(), ReduceOp::sum);
      ASSERT_EQ(inputs[output], expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, EveryDType, ::testing::Range(0, kDTypes),
                         [](const auto& info) { return std::string(to_string(static_cast<DType>(info.param))); });

/// Every bit pattern of the 16-bit formats comes through float32 and back; signalling NaNs become quiet.
class SixteenBits : public ::testing::TestWithParam<DType> {};

TEST_P(SixteenBits, EveryNumberSurvives) {
  const DType dtype = GetParam();
  constexpr std::size_t kAll = 65536;
  Bytes all(kAll * 2), ones(kAll * 2), out(kAll * 2), portable(kAll * 2);
  const auto one = static_cast<std::uint16_t>(encode(1, dtype));
  for (std::size_t i = 0; i < kAll; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(all.data() + 2 * i, &bits, 2);
    std::memcpy(ones.data() + 2 * i, &one, 2);
  }
  reduce(out.data(), std::vector<const void*>{all.data(), ones.data()}, kAll, dtype, ReduceOp::product);
  reduce_portable(portable.data(), std::vector<const void*>{all.data(), ones.data()}, kAll, dtype, ReduceOp::product);
  const std::uint16_t quiet = dtype == DType::float16 ? 0x0200 : 0x0040;
  for (std::size_t i = 0; i < kAll; ++i) {
    const bool nan = std::isnan(decode(i, dtype));
    ASSERT_EQ(read_as<std::uint16_t>(out, i), nan ? (i | quiet) : i);
    ASSERT_EQ(read_as<std::uint16_t>(portable, i), nan ? (i | quiet) : i);
  }
}

TEST_P(SixteenBits, RoundsOnceAtTheEnd) {
  const DType dtype = GetParam();
  // 1, then pieces of a quarter of its last place: rounded after every step they would all be lost.
  const double piece = std::ldexp(1, -format_of(dtype).mantissa_bits - 2);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 9; ++rank) {
    const std::uint64_t bits = encode(rank == 0 ? 1 : piece, dtype);
    inputs.emplace_back(2);
    std::memcpy(inputs.back().data(), &bits, 2);
  }
  Bytes out(2);
  reduce(out.data(), pointers(inputs), 1, dtype, ReduceOp::sum);
  EXPECT_EQ(decode(read_as<std::uint16_t>(out, 0), dtype), 1 + 8 * piece);
}

TEST_P(SixteenBits, SumsAreNearTheExactOnes) {
  const DType dtype = GetParam();
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 4; ++rank) inputs.push_back(random_elements(10000, dtype, 77 + rank));
  Bytes out(20000);
  reduce(out.data(), pointers(inputs), 10000, dtype, ReduceOp::sum);
  for (std::size_t i = 0; i < 10000; ++i) {
    double exact = 0, size = 0;
    for (const auto& input : inputs) {
      exact += decode(bits_at(input, dtype, i), dtype);
      size += std::fabs(decode(bits_at(input, dtype, i), dtype));
    }
    const double half_a_place = std::fabs(exact) * std::ldexp(1, -format_of(dtype).mantissa_bits - 1);
    ASSERT_NEAR(decode(bits_at(out, dtype, i), dtype), exact, half_a_place + size * 1e-6 + 3e-8);
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, SixteenBits, ::testing::Values(DType::bfloat16, DType::float16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Reduce, NanWinsMinimumAndMaximumOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a{nan, 1, nan, 2}, b{1, nan, nan, 3};
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::vector<float> out(4);
    reduce(out.data(), std::vector<const void*>{a.data(), b.data()}, 4, DType::float32, op);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
    EXPECT_EQ(out[3], op == ReduceOp::min ? 2 : 3);
  }
}

TEST(Reduce, TooLargeForSixteenBitsIsInfinite) {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    const auto most = static_cast<std::uint16_t>(dtype == DType::float16 ? 0x7bff : 0x7f7f);
    std::uint16_t out = 0;
    reduce(&out, std::vector<const void*>{&most, &most}, 1, dtype, ReduceOp::sum);
    EXPECT_EQ(decode(out, dtype), std::numeric_limits<double>::infinity());
    reduce(&out, std::vector<const void*>{&most, &most}, 1, dtype, ReduceOp::max);
    EXPECT_EQ(out, most);
  }
}

TEST(Reduce, BooleansAreAnyAndAll) {
  const std::vector<std::uint8_t> a{0, 0, 1, 1}, b{0, 1, 0, 1};
  std::vector<std::uint8_t> out(4);
  reduce(out.data(), std::vector<const void*>{a.data(), b.data()}, 4, DType::boolean, ReduceOp::sum);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 1, 1, 1}));
  reduce(out.data(), std::vector<const void*>{a.data(), b.data()}, 4, DType::boolean, ReduceOp::product);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 0, 0, 1}));
}

TEST(Reduce, WhatMeansNothingIsRefused) {
  EXPECT_FALSE(supported(DType::boolean, ReduceOp::avg));
  EXPECT_FALSE(supported(DType::float32, ReduceOp::bit_and));
  std::uint8_t byte = 0;
  EXPECT_THROW(reduce(&byte, std::vector<const void*>{&byte, &byte}, 1, DType::boolean, ReduceOp::avg), ConfigError);
}

}  // namespace
}  // namespace lockstep::collective
