#include "sys/signals.h"

#include <gtest/gtest.h>

namespace lockstep::sys {
namespace {

TEST(SignalWatchTest, TellsWhatCameAndPutsTheOldHandlersBack) {
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    SignalWatch watch;
    EXPECT_EQ(watch.take(), 0);
    raise(SIGTERM);
    raise(SIGINT);
    EXPECT_EQ(watch.take(), SIGTERM);
    EXPECT_EQ(watch.take(), SIGINT);
    EXPECT_EQ(watch.take(), 0);
  }
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(SignalWatchTest, WhatIsIgnoredStaysSoAndTheOtherIsHandled) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    SignalWatch watch;
    raise(SIGINT);
    EXPECT_EQ(watch.take(), 0);
    raise(SIGTERM);
    EXPECT_EQ(watch.take(), SIGTERM);
  }
  EXPECT_EQ(std::signal(SIGINT, before), SIG_IGN);
}

}  // namespace
}  // namespace lockstep::sys
