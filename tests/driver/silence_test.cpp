// Which rank a hang is told of.
#include <gtest/gtest.h>

#include "driver/failures.h"

namespace lockstep::driver {
namespace {

std::string stack_at(const std::string& frame, int line) {
  const std::string library = "  File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 9 in " + frame;
  const std::string user = "  File \"/t.py\", line " + std::to_string(line) + " in train_func\n";
  return "Current thread 0x1 (most recent call first):\n" + (frame.empty() ? "" : library + "\n") + user;
}

class SilenceTest : public testing::Test {
 protected:
  void begin(const std::vector<std::string>& stacks) {
    state.policy.hang_timeout = Seconds{4};
    state.ranks.resize(stacks.size());
    for (std::size_t i = 0; i < stacks.size(); ++i) {
      state.ranks[i].stacks = stacks[i];
      state.hung.push_back(static_cast<int>(i));
    }
  }
  std::vector<Failure> failures() const { return failures_of_silence(state, Instant{} + 100s); }
  std::vector<int> ranks() const {
    std::vector<int> named;
    for (const Failure& failure : failures()) named.push_back(failure.rank);
    return named;
  }

  RunState state;
};

TEST_F(SilenceTest, TheRankThatDoesNotWaitIsTheCause) {
  begin({stack_at("all_reduce", 8), stack_at("all_reduce", 8),
         stack_at("", 7) + "Native stack (interrupted thread):\nx(+0x1)[0x2]\n"});
  ASSERT_EQ(ranks(), (std::vector{2, 0, 1}));
  const auto all = failures();
  EXPECT_EQ(all[0].message, "no progress for 4.0s (hang_timeout) at /t.py, line 7 in train_func");
  EXPECT_EQ(all[0].traceback, "Stack (most recent call first):\n  File \"/t.py\", line 7 in train_func\n");
  EXPECT_EQ(all[1].message, "waiting for other ranks in all_reduce at /t.py, line 8 in train_func");
  EXPECT_EQ(describe(all), "rank 2: " + all[0].message + "\nranks 0 and 1: " + all[1].message);
}

TEST_F(SilenceTest, WhenAllWaitAllAreNamed) {
  begin({stack_at("all_reduce", 8), stack_at("all_reduce", 8), stack_at("broadcast", 6)});
  EXPECT_EQ(ranks(), (std::vector{2, 0, 1})) << "the one that stands alone first";
  for (const auto& failure : failures())
    EXPECT_TRUE(failure.message.starts_with("no progress for 4.0s (hang_timeout), waiting for other ranks in "));
}

TEST_F(SilenceTest, ARankThatWasNotLateMayBeTheOneTheyWaitFor) {
  begin({stack_at("all_reduce", 8), stack_at("all_reduce", 8), stack_at("", 7)});
  state.hung = {1, 0};
  EXPECT_EQ(ranks(), (std::vector{2, 0, 1}));
  EXPECT_EQ(failures()[0].message, "the other ranks wait for it at /t.py, line 7 in train_func");
  state.meeting.present = {2};
  EXPECT_EQ(ranks(), (std::vector{2, 0, 1}));
  EXPECT_EQ(failures()[0].message, "waiting for other ranks at /t.py, line 7 in train_func") << "in a barrier of ours";
}

TEST_F(SilenceTest, WhoWaitsIsNamedThoughItIsNotLateYet) {
  begin({stack_at("all_reduce", 8), stack_at("", 9), stack_at("", 7)});
  state.hung = {2};
  EXPECT_EQ(ranks(), (std::vector{2, 0})) << "rank 1 goes on";
}

TEST_F(SilenceTest, WithoutAHeartbeatTheStackDoesNotMatter) {
  begin({stack_at("all_reduce", 8), "pid 3, state T (stopped by a signal)\n"});
  state.hang_kind = FailureKind::heartbeat;
  state.hung = {1};
  ASSERT_EQ(ranks(), std::vector{1});
  EXPECT_TRUE(failures()[0].message.starts_with("no heartbeat for "));
  EXPECT_EQ(failures()[0].traceback, "pid 3, state T (stopped by a signal)\n");
}

TEST_F(SilenceTest, RanksInUnknownPlacesAreAllNamedTheOddOneFirst) {
  begin({stack_at("", 8), stack_at("", 8), stack_at("", 7), ""});
  EXPECT_EQ(ranks(), (std::vector{2, 3, 0, 1}));
}

}  // namespace
}  // namespace lockstep::driver
