#include <fstream>
#include <limits>

#include "runs.h"

// Mixed precision and traces, in one process.
namespace lockstep::torch {
namespace {

namespace fs = std::filesystem;
namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

::torch::Dtype dtype_of_product() { return ::torch::ones({2, 2}).mm(::torch::ones({2, 2})).scalar_type(); }

TEST(Autocast, takes_the_device_first_as_in_python) {
  {
    const Autocast autocast(::torch::kCPU);
    EXPECT_EQ(dtype_of_product(), ::torch::kBFloat16);
    const Autocast half(::torch::kCPU, ::torch::kHalf);
    EXPECT_EQ(dtype_of_product(), ::torch::kHalf);
    const Autocast off(device(), std::nullopt, false);
    EXPECT_EQ(dtype_of_product(), ::torch::kFloat32);
  }
  EXPECT_EQ(dtype_of_product(), ::torch::kFloat32);
  const Autocast dtype_first(::torch::kHalf, ::torch::kCPU);
  EXPECT_EQ(dtype_of_product(), ::torch::kHalf);
}

TEST(GradScaler, divides_sparse_gradients) {
  nn::Embedding table(nn::EmbeddingOptions(5, 2).sparse(true));
  optim::SGD optimizer(table->parameters(), 0.125);
  GradScaler scaler({.init_scale = 1024});
  const auto before = table->weight.detach().clone();
  scaler.scale(table(::torch::tensor({1, 1, 3})).sum()).backward();
  EXPECT_FALSE(table->weight.grad().is_coalesced()) << "row 1 is there twice";
  EXPECT_TRUE(scaler.step(optimizer));
  const auto moved = before - table->weight.detach();
  EXPECT_NEAR(moved[1][0].item<double>(), 0.25, 1e-6);
  EXPECT_NEAR(moved[3][0].item<double>(), 0.125, 1e-6);
  EXPECT_EQ(moved[0][0].item<double>(), 0);
}

/// A parameter with a gradient, and its optimizer.
struct Part {
  explicit Part(double gradient) { parameter.mutable_grad() = ::torch::full({1}, gradient); }
  double value() const { return parameter.item<double>(); }
  ::torch::Tensor parameter = ::torch::zeros({1}, ::torch::requires_grad());
  optim::SGD optimizer{std::vector<::torch::Tensor>{parameter}, 1};
};

TEST(GradScaler, skips_the_optimizer_whose_gradients_overflowed) {
  Part good(8), bad(std::numeric_limits<double>::infinity());
  GradScaler scaler({.init_scale = 4});
  EXPECT_FALSE(scaler.step(bad.optimizer));
  EXPECT_TRUE(scaler.step(good.optimizer));
  EXPECT_EQ(bad.value(), 0);
  EXPECT_EQ(good.value(), -2);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2);
}

TEST(GradScaler, steps_once_before_each_update) {
  Part part(8);
  GradScaler scaler({.init_scale = 4});
  scaler.unscale_(part.optimizer);
  EXPECT_THROW(scaler.unscale_(part.optimizer), ConfigError);
  EXPECT_TRUE(scaler.step(part.optimizer));
  EXPECT_THROW(scaler.step(part.optimizer), ConfigError);
  EXPECT_THROW(scaler.unscale_(part.optimizer), ConfigError);
  EXPECT_EQ(part.value(), -2) << "it stepped once";
  scaler.update();
  EXPECT_TRUE(scaler.step(part.optimizer));

  GradScaler disabled({.enabled = false});
  EXPECT_TRUE(disabled.step(part.optimizer));
  EXPECT_TRUE(disabled.step(part.optimizer)) << "as if there were no scaler";
}

TEST(GradScaler, has_its_state_by_the_names_of_python) {
  GradScaler one({.init_scale = 4}), other;
  other.load_state_dict(one.state_dict());
  EXPECT_EQ(other.get_scale(), 4);
}

class Traces : public tests::Runs {};

Value read(const fs::path& path) {
  std::ifstream file(path);
  return Value::parse(file);
}

TEST_F(Traces, are_recorded_one_at_a_time) {
  Profile first({.directory = directory_});
  EXPECT_THROW(Profile({.directory = directory_}), ConfigError);
  dtype_of_product();
  first.stop();
  EXPECT_TRUE(read(first.path()).contains("traceEvents")) << "the refused one did not end it";
  Profile second({.directory = directory_});
  EXPECT_NE(second.path(), first.path());
  second.stop();
  second.stop();
}

TEST_F(Traces, take_a_path) {
  const std::string file = (directory_ / "new" / "trace.json").string();
  {
    const auto trace = profile(file);
    EXPECT_EQ(trace.path(), file);
  }
  EXPECT_TRUE(read(file).contains("traceEvents"));
  const auto trace = profile(directory_.c_str());
  EXPECT_EQ(trace.path().parent_path(), directory_);
}

}  // namespace
}  // namespace lockstep::torch
