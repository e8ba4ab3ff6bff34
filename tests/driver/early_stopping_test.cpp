#include <lockstep/early_stopping.h>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lockstep {
namespace {

/// After how many results it ends the run; 0: never.
int ends_after(EarlyStopping& early, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (early.should_stop({{"val", {{"loss", values[i]}}}})) return static_cast<int>(i) + 1;
  return 0;
}

TEST(EarlyStopping, WaitsForSoManyResultsThatAreNotBetter) {
  EarlyStopping early({.metric = "val/loss", .patience = 2});
  EXPECT_EQ(ends_after(early, {3, 2, 2.5, 1, 1, 1, 0}), 6);
  EXPECT_EQ(early.best(), 1);
}

TEST(EarlyStopping, MoreIsBetterWithMax) {
  EarlyStopping early({.metric = "val/loss", .patience = 1, .mode = "max"});
  EXPECT_EQ(ends_after(early, {1, 2, 3, 2}), 4);
}

TEST(EarlyStopping, BetterIsBetterByMoreThanTheDelta) {
  EarlyStopping early({.metric = "val/loss", .patience = 2, .min_delta = 0.5});
  EXPECT_EQ(ends_after(early, {3, 2.6, 2.4, 2.2, 2.1}), 5);
}

TEST(EarlyStopping, ANaNIsNeverBetter) {
  EarlyStopping early({.metric = "val/loss", .patience = 2});
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ends_after(early, {kNaN, kNaN, 1}), 2);
}

TEST(EarlyStopping, AResultWithoutTheMetricIsToldOfOnceAndDoesNotCount) {
  EarlyStopping early({.metric = "los", .patience = 1});
  testing::internal::CaptureStderr();
  EXPECT_EQ(ends_after(early, {1, 1, 1}), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("\"los\""), std::string::npos) << said;
  EXPECT_EQ(said.find("\"los\""), said.rfind("\"los\"")) << said;
}

TEST(EarlyStopping, RefusesWhatMakesNoSense) {
  EXPECT_THROW(EarlyStopping({.metric = ""}), ConfigError);
  EXPECT_THROW(EarlyStopping({.metric = "loss", .patience = -1}), ConfigError);
  EXPECT_THROW(EarlyStopping({.metric = "loss", .mode = "least"}), ConfigError);
  EXPECT_THROW(EarlyStopping({.metric = "loss", .min_delta = -1}), ConfigError);
}

}  // namespace
}  // namespace lockstep
