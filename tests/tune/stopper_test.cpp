#include "tune/stopper.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <vector>

namespace lockstep::tune {
namespace {

TEST(StopperTest, ThresholdsEndATrialAtTheirValue) {
  const auto stopper = make_stopper({{"training_iteration", 3}, {"eval/accuracy", 0.9}, {"done", true}});
  EXPECT_FALSE(stopper->on_result(0, {{"training_iteration", 2}, {"eval", {{"accuracy", 0.5}}}, {"done", false}}));
  EXPECT_TRUE(stopper->on_result(0, {{"training_iteration", 3}}));
  EXPECT_TRUE(stopper->on_result(0, {{"eval", {{"accuracy", 0.9}}}}));
  EXPECT_TRUE(stopper->on_result(0, {{"eval/accuracy", 0.95}}));
  EXPECT_TRUE(stopper->on_result(0, {{"done", true}}));
  EXPECT_FALSE(stopper->on_result(0, {{"other", 9}}));
  EXPECT_FALSE(stopper->stop_all(1e9));
  EXPECT_FALSE(make_stopper(Value::object())->on_result(0, {{"x", 1}}));
  EXPECT_TRUE(make_stopper({{"kind", 2}})->on_result(0, {{"kind", 2}}));  // a metric of this name
}

TEST(StopperTest, IterationsAreCountedPerTrial) {
  const auto stopper = make_stopper({{"kind", "max_iteration"}, {"max_iter", 2}});
  EXPECT_FALSE(stopper->on_result(0, {}));
  EXPECT_FALSE(stopper->on_result(1, {}));
  EXPECT_TRUE(stopper->on_result(0, {}));
}

TEST(StopperTest, ATrialEndsOnAPlateau) {
  const auto first_stop = [](Value options, const std::vector<double>& values) {
    options["kind"] = "trial_plateau";
    options["metric"] = "loss";
    const auto stopper = make_stopper(options);
    for (std::size_t at = 0; at < values.size(); ++at)
      if (stopper->on_result(0, {{"loss", values[at]}})) return static_cast<int>(at);
    return -1;
  };
  EXPECT_EQ(first_stop(Value::object(), {5, 1, 1, 1, 1, 1}), 4);
  EXPECT_EQ(first_stop({{"grace_period", 6}}, {5, 1, 1, 1, 1, 1}), 5);
  EXPECT_EQ(first_stop({{"num_results", 2}, {"grace_period", 0}}, {5, 1, 1}), 2);
  EXPECT_EQ(first_stop({{"std", 2}}, {5, 1, 1, 1}), 3);  // deviation 1.73
  EXPECT_EQ(first_stop(Value::object(), {1, 2, 1, 2, 1, 2}), -1);
  EXPECT_EQ(first_stop({{"metric_threshold", 2}, {"mode", "min"}}, {1, 1, 1, 1, 1}), 3);
  EXPECT_EQ(first_stop({{"metric_threshold", 2}, {"mode", "max"}}, {1, 1, 1, 1, 1}), -1);  // it must become better
}

TEST(StopperTest, TheExperimentEndsWhenTheBestAreAlike) {
  const auto stopper =
      make_stopper({{"kind", "experiment_plateau"}, {"metric", "score"}, {"mode", "max"}, {"top", 3}, {"patience", 1}});
  for (const double score : {9.0, 1.0, 9.0, 2.0}) EXPECT_FALSE(stopper->on_result(0, {{"score", score}}));
  EXPECT_FALSE(stopper->on_result(1, {{"score", 9}}));  // the third one: flat, but there is patience
  EXPECT_FALSE(stopper->stop_all(0));
  EXPECT_TRUE(stopper->on_result(2, {{"score", 3}}));
  EXPECT_TRUE(stopper->stop_all(0));
  EXPECT_FALSE(stopper->on_result(2, {{"score", 20}}));  // a better one
  EXPECT_FALSE(stopper->stop_all(0));
}

TEST(StopperTest, ATimeoutEndsTheExperiment) {
  const auto stopper = make_stopper({{"kind", "timeout"}, {"timeout", 60}});
  EXPECT_FALSE(stopper->on_result(0, {}));
  EXPECT_FALSE(stopper->stop_all(59.9));
  EXPECT_TRUE(stopper->stop_all(60));
}

TEST(StopperTest, OneOfThemIsEnough) {
  const auto stopper = make_stopper(
      {{"kind", "combined"},
       {"stoppers",
        {{{"loss", 5}}, {{"kind", "max_iteration"}, {"max_iter", 3}}, {{"kind", "timeout"}, {"timeout", 1}}}}});
  EXPECT_TRUE(stopper->on_result(0, {{"loss", 6}}));
  EXPECT_FALSE(stopper->on_result(0, {{"loss", 1}}));
  EXPECT_TRUE(stopper->on_result(0, {{"loss", 1}}));  // its third report
  EXPECT_FALSE(stopper->stop_all(0));
  EXPECT_TRUE(stopper->stop_all(2));
}

TEST(StopperTest, RefusesWrongOptions) {
  EXPECT_THROW(make_stopper(3), ConfigError);
  EXPECT_THROW(make_stopper({{"loss", "low"}}), ConfigError);
  EXPECT_THROW(make_stopper({{"kind", "max_iteration"}}), ConfigError);
  EXPECT_THROW(make_stopper({{"kind", "trial_plateau"}, {"metric", "x"}, {"metric_threshold", 1}}), ConfigError);
  EXPECT_THROW(make_stopper({{"kind", "experiment_plateau"}, {"metric", "x"}, {"top", 1}}), ConfigError);
  EXPECT_THROW(make_stopper({{"kind", "plateau"}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::tune
