#include "driver/rank_logs.h"

#include <gtest/gtest.h>

#include "../store/scratch.h"

namespace lockstep::driver {
namespace {

TEST(RankLogs, RemembersTheLastLinesOfTheAttempt) {
  Scratch scratch;
  RankLogs logs(scratch.path(), 1);
  logs.append(0, "a\nb");
  logs.append(0, "c\nd");
  EXPECT_EQ(logs.last_lines(0), (std::vector<std::string>{"a", "bc", "d"}));
  logs.begin_attempt();
  EXPECT_TRUE(logs.last_lines(0).empty());
  EXPECT_EQ(slurp(scratch / "rank_0.log"), "a\nbc\nd");
}

TEST(RankLogs, KeepsTheWholeStackOfANativeCrash) {
  Scratch scratch;
  RankLogs logs(scratch.path(), 1);
  std::string stack = "Fatal Python error: Segmentation fault\n\nCurrent thread (most recent call first):\n";
  for (int i = 0; i < 100; ++i) stack += "  File \"x.py\", line " + std::to_string(i) + " in f\n";
  logs.append(0, "an unfinished line");
  EXPECT_TRUE(logs.crash(0).empty());
  logs.append(0, stack);
  EXPECT_EQ(logs.crash(0), stack);
  EXPECT_EQ(logs.last_lines(0).size(), 20U);
  logs.begin_attempt();
  EXPECT_TRUE(logs.crash(0).empty());
}

}  // namespace
}  // namespace lockstep::driver
