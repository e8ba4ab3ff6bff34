#include <gtest/gtest.h>

#include "simulation.h"

namespace lockstep::tune {
namespace {

using Kind = Decision::Kind;

class MedianTest : public testing::Test {
 protected:
  /// Trials 0, 1, 2 with means 1, 2, 3 until time 4.
  std::unique_ptr<Scheduler> with_three(Value description) {
    description["kind"] = "median";
    auto scheduler = make_scheduler(description, 1);
    for (TrialNumber trial = 0; trial < 3; ++trial)
      for (int time = 1; time <= 4; ++time) {
        const double value = static_cast<double>(trial) + 1 + (time % 2 == 0 ? 0.5 : -0.5);
        EXPECT_EQ(scheduler->on_result(trial, time, value, true).kind, Kind::go_on);
      }
    return scheduler;
  }
};

TEST_F(MedianTest, StopsATrialWhoseBestIsWorseThanTheMedianOfMeans) {
  const auto scheduler = with_three({{"grace_period", 2}});
  EXPECT_EQ(scheduler->on_result(3, 1, 9, true).kind, Kind::go_on);    // grace period
  EXPECT_EQ(scheduler->on_result(3, 2, 2.4, true).kind, Kind::go_on);  // means from time 2: 1.5, 2.5, 3.5
  EXPECT_EQ(scheduler->on_result(3, 4, 9, true).kind, Kind::stop);     // best 2.4; means 1.17, 2.17, 3.17
}

TEST_F(MedianTest, ItsBestValueCounts) {
  const auto scheduler = with_three({{"grace_period", 2}});
  EXPECT_EQ(scheduler->on_result(3, 1, 2, true).kind, Kind::go_on);
  EXPECT_EQ(scheduler->on_result(3, 4, 100, true).kind, Kind::go_on);
}

TEST_F(MedianTest, NeedsEnoughOtherTrials) {
  const auto scheduler = with_three({{"grace_period", 1}, {"min_samples_required", 4}});
  EXPECT_EQ(scheduler->on_result(3, 4, 100, true).kind, Kind::go_on);
  const auto later = with_three({{"grace_period", 1}});
  EXPECT_EQ(later->on_result(3, 5, 100, true).kind, Kind::go_on);  // no other has come so far
}

TEST_F(MedianTest, TrialsThatEndedStillCount) {
  const auto scheduler = with_three({{"grace_period", 1}});
  for (TrialNumber trial = 0; trial < 3; ++trial) scheduler->on_ended(trial, false);
  EXPECT_EQ(scheduler->on_result(3, 4, std::nan(""), true).kind, Kind::stop);
}

TEST_F(MedianTest, PausesOnceWithoutHardStop) {
  const auto scheduler = with_three({{"grace_period", 1}, {"hard_stop", false}});
  EXPECT_EQ(scheduler->on_result(3, 2, 100, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->choose({4}, {3}), 4);
  EXPECT_EQ(scheduler->choose({}, {3}), 3);
  EXPECT_EQ(scheduler->on_result(3, 3, 100, true).kind, Kind::go_on);
}

TEST_F(MedianTest, TrialsTakeTurnsWhileThereIsTooLittleToCompare) {
  const auto scheduler = make_scheduler({{"kind", "median"}, {"grace_period", 1}, {"min_time_slice", 2}}, 1);
  EXPECT_EQ(scheduler->choose({0, 1}, {}), 0);
  EXPECT_EQ(scheduler->on_result(0, 2, 1, true).kind, Kind::go_on);
  EXPECT_EQ(scheduler->on_result(0, 3, 1, false).kind, Kind::go_on);  // it would lose what it did
  EXPECT_EQ(scheduler->on_result(0, 3, 1, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->choose({1}, {0}), 1);
  EXPECT_EQ(scheduler->choose({}, {0}), 0);
  EXPECT_EQ(scheduler->on_result(0, 9, 1, true).kind, Kind::go_on);  // no other waits
}

}  // namespace
}  // namespace lockstep::tune
