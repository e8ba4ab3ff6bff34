#include "store/score.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>

namespace lockstep::store {
namespace {

std::vector<Tensor> none() {
  ADD_FAILURE() << "the arrays are not needed";
  return {};
}

std::optional<double> score(std::string_view data, const std::string& attribute = "acc") {
  return score_in(data, attribute, none);
}

TEST(Score, PlainNumbers) {
  EXPECT_EQ(score(R"({"acc": 1.5})"), 1.5);
  EXPECT_EQ(score(R"({"acc": 3})"), 3);
  EXPECT_EQ(score(R"({"val": {"acc": 2}})", "val/acc"), 2);
  EXPECT_TRUE(std::isnan(score(R"({"acc": {"$float": "nan"}})").value()));
  EXPECT_EQ(score(R"({"acc": {"$int": "100000000000000000000"}})"), 1e20);
}

TEST(Score, NumpysScalars) {
  EXPECT_EQ(score(R"({"acc": {"$numpy": "float32", "value": 5.0}})"), 5);
  EXPECT_EQ(score(R"({"acc": {"$numpy": "float32", "value": {"$float": "-inf"}}})"), -INFINITY);
}

TEST(Score, DictsOfOtherKinds) {
  EXPECT_EQ(score(R"({"$dict": [["acc", 5.0], [7, "x"]]})"), 5);
  EXPECT_EQ(score(R"({"$dict": [["$x", 1], ["acc", {"$numpy": "int64", "value": 5}]]})"), 5);
  EXPECT_EQ(score(R"({"$ordered_dict": [["acc", 5.0]]})"), 5);
  EXPECT_EQ(score(R"({"$counter": [["acc", 5]]})"), 5);
}

TEST(Score, ArraysOfOneElement) {
  const double f64 = 2.5;
  const float f32[] = {1, 2, 3};
  const std::int8_t i8 = -7;
  const std::uint16_t f16 = 0xc500, bf16 = 0x4120, tiny = 0x0001;
  const auto tensors = [&]() -> std::vector<Tensor> {
    return {{"f64", "F64", {}, std::as_bytes(std::span(&f64, 1))},
            {"f32", "F32", {3}, std::as_bytes(std::span(f32))},
            {"i8", "I8", {1, 1}, std::as_bytes(std::span(&i8, 1))},
            {"f16", "F16", {}, std::as_bytes(std::span(&f16, 1))},
            {"tiny", "F16", {}, std::as_bytes(std::span(&tiny, 1))},
            {"bf16", "BF16", {}, std::as_bytes(std::span(&bf16, 1))}};
  };
  const auto of = [&](const std::string& form) { return score_in(R"({"acc": )" + form + "}", "acc", tensors); };
  EXPECT_EQ(of(R"({"$tensor": "f64", "kind": "numpy"})"), 2.5);
  EXPECT_EQ(of(R"({"$tensor": "f32", "kind": "torch", "shape": [], "stride": [], "offset": 2})"), 3);
  EXPECT_EQ(of(R"({"$tensor": "i8"})"), -7);
  EXPECT_EQ(of(R"({"$tensor": "f16"})"), -5);
  EXPECT_EQ(of(R"({"$tensor": "tiny"})"), std::ldexp(1, -24));
  EXPECT_EQ(of(R"({"$tensor": "bf16"})"), 10);
  EXPECT_FALSE(of(R"({"$tensor": "f32"})"));
  EXPECT_FALSE(of(R"({"$tensor": "f32", "shape": [], "offset": 3})"));
  EXPECT_FALSE(of(R"({"$tensor": "f32", "shape": [], "offset": -1})"));
  EXPECT_FALSE(of(R"({"$tensor": "f64", "dtype": "complex32", "shape": []})"));
  EXPECT_FALSE(of(R"({"$tensor": "missing"})"));
}

TEST(Score, WhatIsNoNumber) {
  for (const char* data : {R"({})", R"([1])", R"({"acc": "1"})", R"({"acc": [1]})", R"({"acc": null})",
                           R"({"acc": {"$object": 0}})", R"({"acc": {"$numpy": "float32"}})"})
    EXPECT_FALSE(score(data)) << data;
  EXPECT_THROW(score("{"), StorageError);
}

TEST(Score, OfACheckpoint) {
  EXPECT_EQ(score_of(Checkpoint::from_dict({{"acc", 4}}), "acc"), 4);
  EXPECT_FALSE(score_of(Checkpoint::from_files({{"weights", {1}}}), "acc"));
}

}  // namespace
}  // namespace lockstep::store
