// Time and meetings in step(): barriers, silence, hangs, Ctrl-C.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class WaitingTest : public StepFixture {
 protected:
  void begin(int ranks) {
    start(ranks, state.policy.max_failures);
    run_all();
  }
  /// The ranks that are given a checkpoint now.
  std::vector<int> given() const {
    std::vector<int> ranks;
    for (const auto& each : done<GiveCheckpoint>()) ranks.push_back(each.rank);
    return ranks;
  }
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

TEST_F(WaitingTest, ARankThatComesTooLateIsToldAtOnceAndTheNextMeetingIsEverybodys) {
  begin(2);
  meet(0, 0, 5);
  time += 5s;
  send(Tick{});
  meet(0, 1, 60);
  EXPECT_TRUE(actions.empty());
  meet(1, 0, 60);
  ASSERT_EQ(done<ReleaseMeeting>().size(), 1U);
  EXPECT_EQ(done<ReleaseMeeting>()[0].rank, 1);
  EXPECT_EQ(done<ReleaseMeeting>()[0].done.meeting, 0);
  EXPECT_NE(done<ReleaseMeeting>()[0].done.error.find("rank 1 came too late"), std::string::npos);
  meet(1, 1, 60);
  ASSERT_EQ(done<ReleaseMeeting>().size(), 2U);
  for (const auto& each : done<ReleaseMeeting>()) EXPECT_TRUE(each.done.error.empty());
}

TEST_F(WaitingTest, EveryRankIsGivenTheCheckpointThatItReportedOnceItIsCommitted) {
  begin(2);
  report(1, 0);
  send(CheckpointWanted{0, 1, 0});
  EXPECT_TRUE(given().empty());
  report(0, 0, true);
  send(CheckpointWanted{0, 0, 0});
  EXPECT_TRUE(given().empty());
  write(0, 0);
  EXPECT_EQ(given(), (std::vector{0, 1}));
  ASSERT_TRUE(std::holds_alternative<Commit>(actions.front()));
  EXPECT_TRUE(std::holds_alternative<AnnounceCommit>(actions.back())) << "nobody waits for retention and callbacks";
  send(CheckpointWanted{0, 1, 0});
  EXPECT_EQ(given(), std::vector{1});
}

TEST_F(WaitingTest, ARankThatReportedNoCheckpointIsGivenTheNewestAtOnce) {
  begin(2);
  report(0, 0, true);
  send(CheckpointWanted{0, 1, -1});
  EXPECT_EQ(given(), std::vector{1});
}

TEST_F(WaitingTest, NobodyWaitsForACheckpointThatIsNeverMade) {
  begin(3);
  for (const int rank : {1, 2}) send(CheckpointWanted{0, rank, 1});
  report(0, 0, true);
  report(0, 1);
  EXPECT_TRUE(given().empty()) << "an earlier one is being written";
  write(0, 0);
  EXPECT_EQ(given(), (std::vector{1, 2})) << "rank 0 made report 1 without a checkpoint";
  send(CheckpointWanted{0, 1, 5});
  EXPECT_TRUE(given().empty());
  send(MeetingEntered{0, 0, {0, 60, {}}});
  EXPECT_EQ(given(), std::vector{1}) << "rank 0 itself waits for rank 1";
  send(CheckpointWanted{0, 2, 5});
  EXPECT_EQ(given(), std::vector{2});
}

TEST_F(WaitingTest, NobodyWaitsForACheckpointOfARankThatEnded) {
  begin(2);
  send(CheckpointWanted{0, 1, 3});
  send(WorkerFinished{0, 0});
  EXPECT_EQ(given(), std::vector{1});
}

TEST_F(WaitingTest, WithAllRanksKeptACheckpointIsAwaitedUntilNobodyCanMakeItWhole) {
  state.policy.keep_all_ranks = true;
  begin(2);
  report(0, 0, true);
  write(0, 0);
  send(CheckpointWanted{0, 0, 0});
  EXPECT_TRUE(given().empty());
  report(1, 0, true);
  EXPECT_TRUE(given().empty());
  write(1, 0);
  EXPECT_EQ(given(), std::vector{0});
  report(0, 1, true);
  write(0, 1);
  send(CheckpointWanted{0, 0, 1});
  meet(1, 0);
  EXPECT_EQ(given(), std::vector{0}) << "rank 1 waits for rank 0 and rank 0 for rank 1";
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
  EXPECT_EQ(state.hung, std::vector<int>{1});
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

TEST_F(WaitingTest, RanksThatFallSilentTogetherAreNamedTogether) {
  state.policy.hang_timeout = Seconds{3};
  begin(3);
  time += 100ms;
  beat(1, 1);
  time += 1s;
  beat(2, 1);
  time += 1900ms;
  for (int rank : {0, 1, 2}) beat(rank, state.ranks[static_cast<std::size_t>(rank)].progress);
  send(Tick{});
  EXPECT_EQ(state.hung, (std::vector<int>{0, 1})) << "the longest silent first";
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

TEST_F(WaitingTest, RanksThatOnlyWaitDoNotHang) {
  state.policy.hang_timeout = Seconds{3};
  begin(3);
  meet(1, 0, 1000);
  send(CheckpointWanted{0, 2, 50});
  for (int i = 0; i < 10; ++i) {
    time += 2s;
    for (int rank : {1, 2}) beat(rank);
    report(0, i);
    EXPECT_EQ(next_deadline(state), time + 3s) << "rank 0 is the one to watch";
    send(Tick{});
    ASSERT_EQ(state.phase, Phase::attempting);
  }
  send(WorkerFinished{0, 0});
  ASSERT_EQ(done<ReleaseMeeting>().size(), 1U);
  EXPECT_EQ(given(), std::vector{2});
  EXPECT_EQ(next_deadline(state), time + 3s) << "who is released has just made progress";
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
  send(Interrupted{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_TRUE(done<StopWorkers>()[0].interrupt);
  send(Interrupted{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::interrupted);
}

TEST_F(WaitingTest, AnInterruptBeforeAllFunctionsRunKillsAtOnce) {
  size = 2;
  send(AgentIsReady{});
  send(WorkerStarted{0, 0});
  send(Interrupted{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
}

TEST_F(WaitingTest, AnInterruptReleasesRanksThatWaitForEachOther) {
  begin(2);
  meet(0, 0);
  send(Interrupted{});
  ASSERT_EQ(done<ReleaseMeeting>().size(), 1U);
  EXPECT_NE(done<ReleaseMeeting>()[0].done.error.find("being stopped"), std::string::npos);
}

TEST_F(WaitingTest, AnInterruptWhileStoppingMeansNoFurtherAttempt) {
  state.policy.max_failures = -1;
  begin(2);
  send(WorkerExited{0, 0, 1, 0, false, false});
  send(Interrupted{});
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::interrupted);
}

TEST_F(WaitingTest, AnInterruptBeforeTheAgentIsReadyEndsAtOnce) {
  send(Interrupted{});
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
  send(AgentLost{0, "gone"});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::failed);
  EXPECT_EQ(done<EndRun>()[0].failures[0].kind, FailureKind::node);
}

TEST_F(WaitingTest, NothingHappensAfterTheEnd) {
  begin(1);
  send(WorkerFinished{0, 0});
  send(AttemptEnded{0});
  ASSERT_EQ(state.phase, Phase::ended);
  for (const Event& event : {Event(Tick{}), Event(Interrupted{}), Event(AgentIsReady{}), Event(WorkerFinished{0, 0}),
                             Event(AgentLost{0, "x"})}) {
    send(event);
    EXPECT_TRUE(actions.empty());
  }
  EXPECT_FALSE(next_deadline(state).has_value());
}

}  // namespace
}  // namespace lockstep::driver
