#include "driver/run_control.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace lockstep::driver {
namespace {

bool is_readable(const RunControl& control) {
  pollfd item{control.fd(), POLLIN, 0};
  return ::poll(&item, 1, 0) == 1;
}

TEST(RunControlTest, GivesARequestOnce) {
  RunControl control;
  EXPECT_FALSE(is_readable(control));
  EXPECT_EQ(control.take(), std::nullopt);
  control.request_stop(true);
  EXPECT_TRUE(is_readable(control));
  EXPECT_EQ(control.take(), true);
  EXPECT_FALSE(is_readable(control));
  EXPECT_EQ(control.take(), std::nullopt);
}

TEST(RunControlTest, AtOnceWins) {
  RunControl control;
  control.request_stop(true);
  control.request_stop(false);
  control.request_stop(true);
  EXPECT_EQ(control.take(), false);
}

}  // namespace
}  // namespace lockstep::driver
