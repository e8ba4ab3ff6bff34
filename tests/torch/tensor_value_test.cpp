#include <lockstep/array.h>

#include "runs.h"

// Tensors in metrics, alone and through a run.
namespace lockstep::torch {
namespace {

using ::torch::Tensor;

std::string refusal_of(const Tensor& tensor) {
  try {
    const Value metrics{{"bad", tensor}};
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(TensorValue, OneElementIsItsNumber) {
  const Tensor loss = ::torch::full({1, 1}, 0.5, ::torch::requires_grad());
  EXPECT_EQ((Value{{"loss", loss}, {"n", ::torch::tensor(3)}, {"b", ::torch::tensor(true)}}),
            (Value{{"loss", 0.5}, {"n", 3}, {"b", true}}));
  EXPECT_EQ(Value(::torch::tensor(0.25).to(::torch::kBFloat16)), 0.25);
}

TEST(TensorValue, OthersAreArraysInTheirOrder) {
  const Tensor numbers = ::torch::arange(6, ::torch::kInt32).view({2, 3}).t();
  const Value value(numbers);
  const auto array = array_in(value);
  ASSERT_TRUE(array);
  EXPECT_EQ(summary(*array), (Value{{"shape", {3, 2}}, {"dtype", "int32"}, {"values", {{0, 3}, {1, 4}, {2, 5}}}}));
  EXPECT_EQ(summary(*array_in(::torch::ones({2}, ::torch::kBFloat16)))["dtype"], "float32");
  EXPECT_EQ(summary(*array_in(::torch::zeros({0, 4})))["shape"], (Value{0, 4}));
  const Tensor turned = ::torch::_neg_view(::torch::ones({2}));
  EXPECT_EQ(summary(*array_in(turned))["values"], (Value{-1.0, -1.0}));
}

TEST(TensorValue, StandInListsAndDicts) {
  const Value metrics{{"nested", {{"losses", std::vector{::torch::tensor(1), ::torch::tensor(2)}}}}};
  EXPECT_EQ(metrics["nested"]["losses"], (Value{1, 2}));
}

TEST(TensorValue, WhatHasNoNumbersIsRefusedWithAdvice) {
  EXPECT_THAT(refusal_of(Tensor()), testing::HasSubstr("not defined"));
  EXPECT_THAT(refusal_of(::torch::eye(2).to_sparse()), testing::HasSubstr(".to_dense()"));
  EXPECT_THAT(refusal_of(::torch::ones({2}, ::torch::kComplexFloat)), testing::HasSubstr("imag"));
  EXPECT_THAT(refusal_of(::torch::empty({2}, ::torch::kMeta)), testing::HasSubstr("no values"));
}

TEST(TensorValue, ADictOfACheckpointDoesNotTakeThemForBytes) {
  EXPECT_THROW(Checkpoint::from_dict({{"mean", ::torch::ones({3})}}).to_bytes(), ConfigError);
}

struct Keeps : Callback {
  void on_result(const Value& metrics) override {
    if (const auto array = array_in(metrics["counts"])) shape = array->shape;
  }
  std::vector<std::int64_t> shape;
};

void report_tensors(Session& session) {
  session.report({{"loss", ::torch::full({1}, 0.5, ::torch::requires_grad())}, {"counts", ::torch::ones({2, 3})}});
}
LOCKSTEP_TRAIN_FUNCTION(report_tensors);

class TensorRuns : public tests::Runs {};

TEST_F(TensorRuns, ReportTensors) {
  Keeps keeps;
  TrainerOptions given = options(1);
  given.run.callbacks = {&keeps};
  const Result result = TorchTrainer(report_tensors, given).fit();
  EXPECT_EQ(result.metrics["loss"], 0.5);
  EXPECT_EQ(keeps.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(Result::from_path(result.path).metrics["counts"],
            (Value{{"shape", {2, 3}}, {"dtype", "float32"}, {"values", {{1.0, 1.0, 1.0}, {1.0, 1.0, 1.0}}}}));
}

}  // namespace
}  // namespace lockstep::torch
