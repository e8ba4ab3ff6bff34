#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

TEST(Clock, TicksOfAnyDurationCanBeAddedToAnInstant) {
  EXPECT_EQ(ticks(Seconds(1.5)), 1500ms);
  EXPECT_EQ(ticks(Seconds(-1.5)), -1500ms);
  const Instant time = now();
  for (const double seconds : {9.3e9, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_GT(time + ticks(Seconds(seconds)), time + 24h * 365) << seconds;
    EXPECT_LT(time + ticks(Seconds(-seconds)), time) << seconds;
  }
  EXPECT_LT(ticks(Seconds(std::numeric_limits<double>::quiet_NaN())), 0s);
}

}  // namespace
}  // namespace lockstep
