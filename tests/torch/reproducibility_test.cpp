#include "runs.h"

namespace lockstep::torch {
namespace {

TEST(Reproducibility, BringsRandomNumbersBack) {
  enable_reproducibility(3);
  const auto first = ::torch::rand({4});
  const Value state = rng_state();
  const auto second = ::torch::rand({4});
  set_rng_state(state);
  EXPECT_TRUE(::torch::rand({4}).equal(second));
  enable_reproducibility(3);
  EXPECT_TRUE(::torch::rand({4}).equal(first));
  EXPECT_THROW(set_rng_state(Value::binary({1, 2})), ConfigError);
  at::globalContext().setDeterministicAlgorithms(false, false);
  enable_reproducibility(0);
}

}  // namespace
}  // namespace lockstep::torch
