#include "driver/clock.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

TEST(Clock, PollWaitsUntilTheDeadlineOrADay) {
  const Instant time = Instant{} + 1000s;
  EXPECT_EQ(poll_timeout(std::nullopt, time), -1);
  EXPECT_EQ(poll_timeout(time - 1s, time), 0);
  EXPECT_EQ(poll_timeout(time + 1500us, time), 2) << "not too early";
  EXPECT_EQ(poll_timeout(time + 24h * 365, time), 86'400'000) << "as an int, it would overflow";
  EXPECT_EQ(poll_timeout(Instant::max(), time), 86'400'000);
}

}  // namespace
}  // namespace lockstep::driver
