#include <gtest/gtest.h>
#include <lockstep/array.h>
#include <lockstep/error.h>

#include "base/json.h"

namespace lockstep {
namespace {

TEST(Array, StandsInAValueAndIsFoundThere) {
  const std::vector<float> numbers{0, 1, 2, 3, 4, 5.5};
  const Value metrics{{"loss", 0.5}, {"hist", Array{"float32", {2, 3}, memory_of(numbers)}}};
  const auto found = array_in(metrics["hist"]);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->dtype, "float32");
  EXPECT_EQ(found->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(std::ranges::equal(found->data, memory_of(numbers)));
  EXPECT_FALSE(array_in(metrics["loss"]));
  EXPECT_FALSE(array_in(Value::binary(Bytes{7, 1, 2})));
}

TEST(Array, OneElementIsItsNumber) {
  const std::vector<std::int8_t> number{-3};
  EXPECT_EQ(Value(Array{"int8", {1, 1}, memory_of(number)}), Value(-3));
  EXPECT_EQ(Value(Array{"bool", {}, Bytes{1}}), Value(true));
  EXPECT_EQ(Value(Array{"float16", {1}, Bytes{0, 0xc4}}), Value(-4.0));
}

TEST(Array, FilesHoldShapeDtypeAndFewValues) {
  const std::vector<std::uint16_t> numbers(65, 9);
  const Value few = Array{"uint16", {2, 2}, memory_of(std::span(numbers).first(4))};
  const Value many = Array{"uint16", {65}, memory_of(numbers)};
  const Value none = Array{"float64", {1'000'000'000, 0}, {}};
  EXPECT_EQ(to_json(Value{{"a", few}}), R"({"a": {"shape": [2, 2], "dtype": "uint16", "values": [[9, 9], [9, 9]]}})");
  EXPECT_EQ(to_json(many), R"({"shape": [65], "dtype": "uint16"})");
  EXPECT_EQ(to_json(none), R"({"shape": [1000000000, 0], "dtype": "float64", "values": []})");
  EXPECT_EQ(with_summaries(Value{{"a", {1, many}}}).dump(), R"({"a":[1,{"shape":[65],"dtype":"uint16"}]})");
}

TEST(Array, ASummaryIsKnownAgain) {
  EXPECT_TRUE(is_summary(summary({"int8", {2}, Bytes{1, 2}})));
  EXPECT_TRUE(is_summary(summary({"int8", {65}, Bytes(65)})));
  EXPECT_FALSE(is_summary({{"shape", {2}}, {"dtype", "int8"}, {"mine", 1}}));
  EXPECT_FALSE(is_summary({{"shape", 2}, {"dtype", "int8"}}));
  EXPECT_FALSE(is_summary(Value(1)));
}

TEST(Array, WhatContradictsItselfIsRefused) {
  const Bytes six(6);
  EXPECT_THROW(Value(Array{"float32", {2}, six}), ConfigError);
  EXPECT_THROW(Value(Array{"complex64", {2}, six}), ConfigError);
  EXPECT_THROW(Value(Array{"int8", {-6}, six}), ConfigError);
  EXPECT_THROW(Value(Array{"int8", {1LL << 62, 4, 1LL << 62}, six}), ConfigError);
}

TEST(Array, BytesThatAreNoneAreNotRead) {
  const Value whole = Array{"int16", {3, 1}, Bytes(6)};
  const Bytes& bytes = whole.get_binary();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(array_in(Value::binary(cut, kArraySubtype))) << size;
  }
}

}  // namespace
}  // namespace lockstep
