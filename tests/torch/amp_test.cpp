#include <limits>

#include "runs.h"

namespace lockstep::torch {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

::torch::Dtype dtype_of_product() { return ::torch::ones({2, 2}).mm(::torch::ones({2, 2})).scalar_type(); }

TEST(Autocast, TakesTheDeviceFirstAsInPython) {
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

TEST(GradScaler, DividesSparseGradients) {
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

TEST(GradScaler, SkipsTheOptimizerWhoseGradientsOverflowed) {
  Part good(8), bad(std::numeric_limits<double>::infinity());
  GradScaler scaler({.init_scale = 4});
  EXPECT_FALSE(scaler.step(bad.optimizer));
  EXPECT_TRUE(scaler.step(good.optimizer));
  EXPECT_EQ(bad.value(), 0);
  EXPECT_EQ(good.value(), -2);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2);
}

TEST(GradScaler, StepsOnceBeforeEachUpdate) {
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

TEST(GradScaler, HasItsStateByTheNamesOfPython) {
  GradScaler one({.init_scale = 4}), other;
  other.load_state_dict(one.state_dict());
  EXPECT_EQ(other.get_scale(), 4);
}

TEST(Autocast, ComputesInBfloat16WhileItLives) {
  const auto a = ::torch::randn({4, 4});
  {
    const Autocast autocast;
    EXPECT_EQ(::torch::mm(a, a).scalar_type(), ::torch::kBFloat16);
    {
      const Autocast off(std::nullopt, std::nullopt, false);
      EXPECT_EQ(::torch::mm(a, a).scalar_type(), ::torch::kFloat32);
    }
    EXPECT_EQ(::torch::mm(a, a).scalar_type(), ::torch::kBFloat16);
  }
  EXPECT_EQ(::torch::mm(a, a).scalar_type(), ::torch::kFloat32);
}

TEST(GradScaler, StepsAsWithoutAndSkipsOverflows) {
  auto weight = ::torch::ones({2}, ::torch::requires_grad());
  optim::SGD optimizer({weight}, 0.5);
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    return stepped;
  };
  EXPECT_TRUE(step(1));
  EXPECT_TRUE(weight.equal(::torch::full({2}, 0.5)));
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(weight.equal(::torch::full({2}, 0.5)));
  EXPECT_EQ(scaler.get_scale(), 512);
  EXPECT_TRUE(step(1) && step(1));
  EXPECT_EQ(scaler.get_scale(), 1024);
  GradScaler other;
  other.load_state(scaler.state());
  EXPECT_EQ(other.state(), scaler.state());
  optimizer.zero_grad();
  scaler.scale(weight.sum()).backward();
  scaler.unscale(optimizer);
  EXPECT_TRUE(weight.grad().equal(::torch::ones({2}))) << "for clipping";
  EXPECT_THROW(scaler.unscale(optimizer), ConfigError);
}

}  // namespace
}  // namespace lockstep::torch
