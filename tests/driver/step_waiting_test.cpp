// Time and meetings in step(): barriers, silence, hangs, Ctrl-C. The fixture is small on purpose: the other file has
// its own.
#include <gtest/gtest.h>

#include <csignal>

#include "driver/step.h"

namespace lockstep::driver {
namespace {

class WaitingTest : public testing::Test {
 protected:
  void begin(int ranks) {
    state.policy.world_size = ranks;
    send(AgentIsReady{});
    for (int rank = 0; rank < ranks; ++rank) {
      send(WorkerStarted{0, rank, 100 + rank});
      send(WorkerRuns{0, rank, 100 + rank});
    }
  }
  void send(Event event) {
    auto [next, now_actions] = step(std::move(state), std::move(event), time);
    state = std::move(next);
    actions = std::move(now_actions);
  }
  void meet(int rank, int meeting, double timeout = 60, Bytes value = {}) {
    send(MeetingEntered{0, rank, {meeting, timeout, std::move(value)}});
  }
  void beat(int rank, std::int64_t progress = 0) { send(HeartBeat{0, rank, progress}); }
  template <class A>
  std::vector<A> done() const {
    std::vector<A> found;
    for (const Action& action : actions)
      if (const A* each = std::get_if<A>(&action)) found.push_back(*each);
    return found;
  }

  RunState state;
  std::vector<Action> actions;
  Instant time = Instant{} + 1000s;
};

TEST_F(WaitingTest, AMeetingReleasesEverybodyWithRankZerosValue) {
  begin(3);
  meet(1, 0);
  meet(0, 0, 60, {1, 2, 3});
  EXPECT_TRUE(actions.empty());
  meet(2, 0);
  const auto released = done<ReleaseMeeting>();
  ASSERT_EQ(released.size(), 3U);
  for (const auto& each : released) {
    EXPECT_EQ(each.done.value, (Bytes{1, 2, 3}));
    EXPECT_TRUE(each.done.error.empty());
  }
}

TEST_F(WaitingTest, MeetingsFollowEachOther) {
  begin(2);
  for (int meeting = 0; meeting < 3; ++meeting) {
    meet(0, meeting);
    meet(1, meeting);
    ASSERT_EQ(done<ReleaseMeeting>().size(), 2U);
    EXPECT_EQ(done<ReleaseMeeting>()[0].done.meeting, meeting);
  }
}

TEST_F(WaitingTest, AMeetingThatTakesTooLongNamesTheMissingRanks) {
  begin(4);
  meet(0, 0, 5);
  meet(2, 0, 5);
  EXPECT_EQ(next_deadline(state), time + 5s);
  time += 5s;
  send(Tick{});
  const auto released = done<ReleaseMeeting>();
  ASSERT_EQ(released.size(), 2U);
  EXPECT_NE(released[0].done.error.find("ranks 1 and 3"), std::string::npos);
}

TEST_F(WaitingTest, AMeetingThatARankHasLeftFailsAtOnce) {
  begin(2);
  meet(0, 0);
  send(WorkerFinished{0, 1});
  const auto released = done<ReleaseMeeting>();
  ASSERT_EQ(released.size(), 1U);
  EXPECT_NE(released[0].done.error.find("rank 1"), std::string::npos);
}

TEST_F(WaitingTest, ARankWithoutHeartbeatIsNamedWithStacksBeforeAnythingIsKilled) {
  state.policy.heartbeat_timeout = Seconds{10};
  begin(2);
  time += 6s;
  beat(0);
  EXPECT_EQ(next_deadline(state), time + 4s);
  time += 4s;
  send(Tick{});
  EXPECT_EQ(state.phase, Phase::diagnosing);
  EXPECT_EQ(done<TakeStacks>().size(), 1U);
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(WorkerStacks{0, 0, "stack of 0"});
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(WorkerStacks{0, 1, "stopped"});
  ASSERT_EQ(done<SaveStacks>().size(), 1U);
  EXPECT_EQ(done<SaveStacks>()[0].silent, std::vector<int>{1});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  ASSERT_EQ(state.failures.size(), 1U);
  EXPECT_EQ(state.failures[0].kind, FailureKind::heartbeat);
  EXPECT_EQ(state.failures[0].rank, 1);
  EXPECT_EQ(state.failures[0].traceback, "stopped");
}

TEST_F(WaitingTest, StacksThatNeverComeAreNotWaitedForLong) {
  state.policy.heartbeat_timeout = Seconds{10};
  begin(1);
  time += 10s;
  send(Tick{});
  ASSERT_EQ(state.phase, Phase::diagnosing);
  time = *next_deadline(state);
  send(Tick{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(WaitingTest, WithoutHangTimeoutARankMayTakeForEver) {
  begin(1);
  for (int i = 0; i < 1000; ++i) {
    time += 5s;
    beat(0);
    send(Tick{});
    ASSERT_EQ(state.phase, Phase::attempting);
  }
}

TEST_F(WaitingTest, NoProgressWithinHangTimeoutIsAHang) {
  state.policy.hang_timeout = Seconds{3};
  begin(2);
  time += 2s;
  beat(0, 1);
  beat(1, 0);
  time += 1s;
  send(Tick{});
  EXPECT_EQ(state.phase, Phase::diagnosing);
  EXPECT_EQ(state.hung, std::vector<int>{1});
  EXPECT_EQ(state.hang_kind, FailureKind::hang);
}

TEST_F(WaitingTest, RanksThatWaitForTheHungOneAreNotBlamed) {
  state.policy.hang_timeout = Seconds{3};
  begin(3);
  time += 1s;
  meet(0, 0);
  meet(2, 0);
  time += 10s;
  for (int rank : {0, 1, 2}) beat(rank, state.ranks[static_cast<std::size_t>(rank)].progress);
  send(Tick{});
  EXPECT_EQ(state.hung, std::vector<int>{1});
}

TEST_F(WaitingTest, FinishedRanksAreNeverSilent) {
  begin(2);
  send(WorkerFinished{0, 0});
  time += 9s;
  beat(1);
  time += 5s;
  send(Tick{});
  EXPECT_EQ(state.phase, Phase::attempting);
}

TEST_F(WaitingTest, TheFirstInterruptAsksTheSecondKills) {
  begin(2);
  send(Interrupt{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_TRUE(done<StopWorkers>()[0].interrupt);
  send(Interrupt{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::interrupted);
}

TEST_F(WaitingTest, AnInterruptBeforeAllFunctionsRunKillsAtOnce) {
  state.policy.world_size = 2;
  send(AgentIsReady{});
  send(WorkerStarted{0, 0, 100});
  send(Interrupt{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
}

TEST_F(WaitingTest, AnInterruptReleasesRanksThatWaitForEachOther) {
  begin(2);
  meet(0, 0);
  send(Interrupt{});
  ASSERT_EQ(done<ReleaseMeeting>().size(), 1U);
  EXPECT_NE(done<ReleaseMeeting>()[0].done.error.find("being stopped"), std::string::npos);
}

TEST_F(WaitingTest, AnInterruptWhileStoppingMeansNoFurtherAttempt) {
  state.policy.max_failures = -1;
  begin(2);
  send(WorkerExited{0, 0, 1, 0, false, false});
  send(Interrupt{});
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::interrupted);
}

TEST_F(WaitingTest, AnInterruptBeforeTheAgentIsReadyEndsAtOnce) {
  state.policy.world_size = 2;
  send(Interrupt{});
  EXPECT_EQ(done<EndRun>().size(), 1U);
}

TEST_F(WaitingTest, ACallbackThatRaisesEndsTheRunWithoutAnotherAttempt) {
  state.policy.max_failures = -1;
  begin(1);
  Failure failure;
  failure.kind = FailureKind::callback;
  send(DriverFailed{failure, true});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].failures[0].kind, FailureKind::callback);
}

TEST_F(WaitingTest, ARefusingDiskIsAFailureLikeAnyOther) {
  state.policy.max_failures = 1;
  begin(1);
  Failure failure;
  failure.kind = FailureKind::storage;
  send(DriverFailed{failure, false});
  send(AttemptEnded{0});
  EXPECT_EQ(done<StartWorkers>().size(), 1U);
}

TEST_F(WaitingTest, ALostAgentEndsTheRun) {
  state.policy.max_failures = -1;
  begin(2);
  send(AgentLost{"gone"});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::failed);
  EXPECT_EQ(done<EndRun>()[0].failures[0].kind, FailureKind::node);
}

TEST_F(WaitingTest, NothingHappensAfterTheEnd) {
  begin(1);
  send(WorkerFinished{0, 0});
  send(AttemptEnded{0});
  ASSERT_EQ(state.phase, Phase::ended);
  for (const Event& event :
       {Event(Tick{}), Event(Interrupt{}), Event(AgentIsReady{}), Event(WorkerFinished{0, 0}), Event(AgentLost{"x"})}) {
    send(event);
    EXPECT_TRUE(actions.empty());
  }
  EXPECT_FALSE(next_deadline(state).has_value());
}

}  // namespace
}  // namespace lockstep::driver
