#include "driver/rank_logs.h"

#include <gtest/gtest.h>

#include "../store/scratch.h"
#include "base/ids.h"

namespace lockstep::driver {
namespace {

TEST(RankLogs, RemembersTheLastLinesOfTheAttempt) {
  Scratch scratch;
  RankLogs logs(scratch.path());
  logs.begin_attempt(0, 1, WallTime{});
  logs.append(0, "a\nb");
  logs.append(0, "c\nd");
  EXPECT_EQ(logs.last_lines(0), (std::vector<std::string>{"a", "bc", "d"}));
  logs.begin_attempt(1, 1, WallTime{});
  EXPECT_TRUE(logs.last_lines(0).empty());
}

TEST(RankLogs, AttemptsAreMarkedOnLinesOfTheirOwn) {
  Scratch scratch;
  const WallTime time{};
  const auto mark = [&](int attempt) {
    return "==== attempt " + std::to_string(attempt) + ", " + time_string(time) + " ====\n";
  };
  {
    RankLogs logs(scratch.path());
    logs.begin_attempt(0, 2, time);
    logs.append(0, "a\nno end");
    logs.begin_attempt(1, 2, time);
    logs.append(0, "b\nkilled");
    EXPECT_EQ(logs.last_lines(0), (std::vector<std::string>{"b", "killed"}));
  }
  RankLogs restored(scratch.path());
  restored.begin_attempt(2, 2, time);
  restored.append(0, "c\n");
  EXPECT_EQ(slurp(scratch / "rank_0.log"), mark(0) + "a\nno end\n" + mark(1) + "b\nkilled\n" + mark(2) + "c\n");
  EXPECT_EQ(slurp(scratch / "rank_1.log"), mark(0) + mark(1) + mark(2));
  RankLogs("").begin_attempt(0, 1, time);  // no files, no marks
}

TEST(RankLogs, KeepsTheWholeStackOfANativeCrash) {
  Scratch scratch;
  RankLogs logs(scratch.path());
  logs.begin_attempt(0, 1, WallTime{});
  std::string stack = "Fatal Python error: Segmentation fault\n\nCurrent thread (most recent call first):\n";
  for (int i = 0; i < 100; ++i) stack += "  File \"x.py\", line " + std::to_string(i) + " in f\n";
  logs.append(0, "an unfinished line");
  EXPECT_TRUE(logs.crash(0).empty());
  logs.append(0, stack);
  EXPECT_EQ(logs.crash(0), stack);
  EXPECT_EQ(logs.last_lines(0).size(), 20U);
  logs.begin_attempt(1, 1, WallTime{});
  EXPECT_TRUE(logs.crash(0).empty());
}

TEST(RankLogs, ManyRanksTakeFewDescriptors) {
  Scratch scratch;
  RankLogs logs(scratch.path());
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator{});
  };
  const auto before = open_files();
  logs.begin_attempt(0, 200, WallTime{});
  for (int round = 0; round < 2; ++round)
    for (int rank = 0; rank < 200; ++rank) logs.append(rank, "line " + std::to_string(round) + "\n");
  EXPECT_LT(open_files() - before, 50);
  for (const int rank : {0, 100, 199})
    EXPECT_TRUE(slurp(scratch / ("rank_" + std::to_string(rank) + ".log")).ends_with("====\nline 0\nline 1\n")) << rank;
}

}  // namespace
}  // namespace lockstep::driver
