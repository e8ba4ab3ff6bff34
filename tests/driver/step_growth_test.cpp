// Elastic runs: attempts that end so that larger ones can begin.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class GrowthTest : public StepFixture {
 protected:
  void begin(int ranks, int max_failures = 0) {
    state.policy.workers = {1, 4};
    start(ranks, max_failures);
    run_all();
  }
  /// Rank 0 makes the report of this index with a checkpoint, which is committed.
  void commit(int index) {
    report(0, index, true);
    write(0, index);
  }
  void find_room(int workers) { send(RoomFound{state.attempt, workers}); }
  /// Every rank answers that it waits in its next report, or in the one that it makes.
  void pause_all() {
    for (int i = 0; i < world(); ++i) send(ReportsPaused{state.attempt, i, rank(i).reports + 1});
  }
  void die_all() {
    for (int i = 0; i < world(); ++i)
      if (!rank(i).exited) exit(i, 0, SIGKILL, true);
    send(AttemptEnded{state.attempt});
  }
  void finish_all() {
    for (int i = 0; i < world(); ++i) send(WorkerFinished{state.attempt, i});
    for (int i = 0; i < world(); ++i) exit(i, 0, 0);
    send(AttemptEnded{state.attempt});
  }
  /// All ranks make the report of this index, rank 0 with a checkpoint.
  void report_all(int index, bool checkpoint) {
    for (int i = world() - 1; i >= 0; --i) report(i, index, i == 0 && checkpoint);
    if (checkpoint) write(0, index);
  }
  /// The next attempt has so many workers.
  void grow(int workers) {
    find_room(workers);
    pause_all();
    const int index = rank(0).reports;
    report_all(index, true);
    size = workers;
    finish_all();
    run_all();
  }
  int world() const { return static_cast<int>(state.ranks.size()); }
  const RankState& rank(int number) const { return state.ranks[static_cast<std::size_t>(number)]; }
  /// What LetPass said last.
  int passing() const { return done<LetPass>().empty() ? -2 : done<LetPass>().back().reports; }
};

TEST_F(GrowthTest, EveryRankEndsAfterTheReportOfTheNextCheckpoint) {
  begin(2);
  find_room(4);
  EXPECT_EQ(done<PauseReports>().size(), 2U);
  send(ReportsPaused{0, 0, 1});
  EXPECT_EQ(passing(), -2) << "rank 1 has not answered";
  send(ReportsPaused{0, 1, 2});
  EXPECT_EQ(passing(), 1) << "rank 0 may go on to the second";
  report_all(0, true);
  EXPECT_TRUE(done<EndAfter>().empty()) << "rank 1 is in its second";
  report(1, 1);
  report(0, 1);
  EXPECT_EQ(passing(), 2) << "without a checkpoint all go on to the next";
  report(1, 2);
  report(0, 2, true);
  ASSERT_EQ(done<EndAfter>().size(), 2U);
  for (const EndAfter& each : done<EndAfter>()) {
    EXPECT_EQ(each.reports, 3);
    EXPECT_TRUE(each.restarts);
  }
  write(0, 2);
  size = 4;
  finish_all();
  ASSERT_NE(did<AnnounceResize>(), nullptr);
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
  EXPECT_EQ(did<StartWorkers>()->placement.world_size(), 4);
}

TEST_F(GrowthTest, ItIsAskedWhenACheckpointIsCommitted) {
  begin(2);
  report(0, 0, true);
  EXPECT_EQ(did<LookForRoom>(), nullptr);
  write(0, 0);
  EXPECT_NE(did<LookForRoom>(), nullptr);
}

TEST_F(GrowthTest, WhenTheRoomIsGoneAllGoOn) {
  begin(2);
  find_room(4);
  pause_all();
  find_room(2);
  EXPECT_EQ(passing(), -1);
  report_all(0, true);
  EXPECT_EQ(count_all<EndAfter>(), 0);
  find_room(4);
  EXPECT_EQ(done<PauseReports>().size(), 2U) << "it can come again";
}

TEST_F(GrowthTest, AnswersOfAnEarlierTimeDoNotCount) {
  begin(2);
  find_room(4);
  send(ReportsPaused{0, 0, 1});
  find_room(2);
  EXPECT_EQ(passing(), -1);
  find_room(4);
  EXPECT_TRUE(done<PauseReports>().empty()) << "rank 1's answer is still to come";
  send(ReportsPaused{0, 1, 1});
  EXPECT_TRUE(actions.empty());
  find_room(4);
  EXPECT_EQ(done<PauseReports>().size(), 2U);
}

TEST_F(GrowthTest, RanksThatReportUnevenlyAreKilledAtACommittedCheckpoint) {
  begin(2);
  find_room(4);
  pause_all();
  report(1, 0);
  EXPECT_EQ(next_deadline(state), time + 1s);
  for (int second = 0; second < 5; ++second) {
    time += 1s;
    for (const int i : {0, 1}) beat(i);
    send(Tick{});
    find_room(4);
  }
  EXPECT_EQ(count_all<LetPass>(), 2) << "rank 1 waited in vain for rank 0, which may wait for it elsewhere";
  EXPECT_EQ(passing(), -2);
  report(1, 1);
  EXPECT_EQ(count_all<PauseReports>(), 2);
  report(0, 0, true);
  EXPECT_TRUE(done<StopWorkers>().empty());
  write(0, 0);
  ASSERT_NE(did<LookForRoom>(), nullptr);
  find_room(4);
  EXPECT_FALSE(done<StopWorkers>().empty());
  size = 4;
  die_all();
  EXPECT_NE(did<AnnounceResize>(), nullptr);
  EXPECT_NE(did<StartWorkers>(), nullptr);
}

TEST_F(GrowthTest, RanksThatNeverReportAreEndedOnceTheCheckpointIsCommitted) {
  begin(3);
  report(0, 0);
  find_room(4);
  pause_all();
  report(0, 1, true);
  EXPECT_EQ(done<EndAfter>().size(), 3U);
  write(0, 1);
  send(WorkerFinished{0, 0});
  time += 1s;
  for (const int i : {1, 2}) beat(i);
  send(Tick{});
  ASSERT_FALSE(done<StopWorkers>().empty());
  size = 4;
  die_all();
  EXPECT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(count_all<AnnounceFailure>(), 0);
}

TEST_F(GrowthTest, RanksThatAreSlowToMakeTheLastReportAreWaitedFor) {
  begin(2);
  report_all(0, false);
  find_room(4);
  pause_all();
  report(0, 1, true);
  write(0, 1);
  send(WorkerFinished{0, 0});
  for (int second = 0; second < 30; ++second) {
    time += 1s;
    beat(1);
    send(Tick{});
  }
  EXPECT_EQ(count_all<StopWorkers>(), 0);
  report(1, 1);
  size = 4;
  finish_all();
  EXPECT_NE(did<StartWorkers>(), nullptr);
}

TEST_F(GrowthTest, AFailureWhileRanksPauseIsOne) {
  begin(2, 0);
  find_room(4);
  pause_all();
  die(1);
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(GrowthTest, AFunctionThatReturnsMeanwhileLetsTheOthersGoOn) {
  begin(2);
  find_room(4);
  pause_all();
  send(WorkerFinished{0, 1});
  EXPECT_EQ(passing(), -1);
  send(WorkerFinished{0, 0});
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(GrowthTest, IsNoFailure) {
  begin(2, 0);
  grow(3);
  EXPECT_EQ(state.failed_attempts, 0);
  EXPECT_EQ(count_all<AnnounceFailure>(), 0);
  EXPECT_EQ(count_all<EndRun>(), 0);
  EXPECT_EQ(state.phase, Phase::attempting);
}

TEST_F(GrowthTest, WithoutMoreRoomTheRunGoesOn) {
  begin(2);
  for (const int workers : {2, 1, 0}) {
    commit(0);
    find_room(workers);
    EXPECT_TRUE(actions.empty()) << workers;
  }
  EXPECT_EQ(state.phase, Phase::attempting);
}

TEST_F(GrowthTest, RoomAloneDoesNotEndAnAttempt) {
  begin(2);
  EXPECT_EQ(next_deadline(state), time + 1s);
  time += 1s;
  send(Tick{});
  ASSERT_NE(did<LookForRoom>(), nullptr);
  EXPECT_EQ(next_deadline(state), time + 1s) << "it is asked again";
  find_room(4);
  EXPECT_EQ(count_all<StopWorkers>() + count_all<EndAfter>(), 0);
}

TEST_F(GrowthTest, NotAgainBeforeTheInterval) {
  state.policy.resize_interval = 60s;
  begin(1);
  grow(2);
  time += 59s;
  for (const int rank : {0, 1}) beat(rank);
  commit(0);
  EXPECT_EQ(did<LookForRoom>(), nullptr);
  find_room(4);
  EXPECT_TRUE(actions.empty());
  time += 1s;
  commit(1);
  ASSERT_NE(did<LookForRoom>(), nullptr);
  find_room(4);
  EXPECT_FALSE(done<PauseReports>().empty());
}

TEST_F(GrowthTest, ALossCountsAsAChangeOfSize) {
  state.policy.resize_interval = 60s;
  begin(3, 1);
  size = 2;
  die(1);
  send(AttemptEnded{0});
  EXPECT_EQ(state.ranks.size(), 2U) << "the next attempt has the rest";
  run_all();
  commit(0);
  EXPECT_EQ(did<LookForRoom>(), nullptr);
  time += 60s;
  commit(1);
  EXPECT_NE(did<LookForRoom>(), nullptr);
}

TEST_F(GrowthTest, AFailureWithTheSameSizeDoesNot) {
  begin(2, 1);
  die(1);
  send(AttemptEnded{0});
  run_all();
  commit(0);
  EXPECT_NE(did<LookForRoom>(), nullptr);
}

TEST_F(GrowthTest, AsLargeAsItMayBeItNeverAsks) {
  begin(4);
  commit(0);
  EXPECT_EQ(did<LookForRoom>(), nullptr);
  EXPECT_EQ(next_deadline(state), time + 10s) << "the heartbeats'";
}

TEST_F(GrowthTest, AFixedSizeNeverAsks) {
  start(2);
  run_all();
  commit(0);
  EXPECT_EQ(count_all<LookForRoom>(), 0);
  EXPECT_EQ(next_deadline(state), time + 10s);
}

TEST_F(GrowthTest, ALostNodeLeadsToTheRestAndCostsNothing) {
  state.policy.count_node_failures = false;
  state.policy.workers = {1, 4};
  on_nodes = {0, 0, 1, 1};
  start(4);
  send(AgentIsReady{1});
  run_all();
  send(AgentLost{1, "gone"});
  size = 2;
  on_nodes = {0, 0};
  send(AttemptEnded{0, 0});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->placement.world_size(), 2);
  EXPECT_EQ(state.failed_attempts, 0);
}

TEST_F(GrowthTest, WhatFailsBecauseOthersHaveEndedIsNoFailure) {
  begin(2);
  find_room(4);
  pause_all();
  report(0, 0, true);
  write(0, 0);
  send(WorkerFinished{0, 0});
  Failure lost;
  lost.kind = FailureKind::exception;
  send(WorkerFailed{0, 1, lost});
  exit(1, 1, 0);
  size = 4;
  send(AttemptEnded{0});
  EXPECT_EQ(count_all<AnnounceFailure>(), 0);
  EXPECT_NE(did<StartWorkers>(), nullptr);
}

TEST_F(GrowthTest, ARunThatEndsDoesNotGrow) {
  begin(2);
  find_room(4);
  pause_all();
  send(StopWanted{});
  EXPECT_EQ(passing(), -1) << "first they go on";
  EXPECT_EQ(done<HoldReports>().size(), 2U);
  commit(0);
  EXPECT_EQ(count_all<LookForRoom>(), 0);
  EXPECT_EQ(count_all<EndAfter>(), 0);
}

TEST_F(GrowthTest, ARunThatEndsWithTheReportOfTheCheckpointIsNotStartedAgain) {
  begin(2);
  find_room(4);
  pause_all();
  report_all(0, true);
  EXPECT_EQ(count_all<EndAfter>(), 2);
  send(StopWanted{});
  finish_all();
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
  EXPECT_EQ(count_all<StartWorkers>(), 1);
}

TEST_F(GrowthTest, ARunThatIsStoppedMeanwhileEnds) {
  begin(2);
  find_room(4);
  pause_all();
  report_all(0, true);
  send(StopRequested{true});
  die_all();
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::stopped);
}

TEST_F(GrowthTest, ARunThatIsPreemptedMeanwhileEnds) {
  begin(2);
  find_room(4);
  pause_all();
  report_all(0, true);
  send(PreemptionNoticed{30s, "SIGUSR1"});
  finish_all();
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::preempted);
}

TEST_F(GrowthTest, APreemptedRunDoesNotGrow) {
  begin(2);
  find_room(4);
  pause_all();
  send(PreemptionNoticed{30s, "SIGUSR1"});
  EXPECT_EQ(passing(), -1);
  find_room(4);
  EXPECT_EQ(count_all<PauseReports>(), 2);
}

// ---------------------------------------------------------------- a node will be taken away

class LeavingTest : public GrowthTest {
 protected:
  void begin_on(const std::vector<int>& nodes) {
    state.policy.workers = {2, 4};
    on_nodes = nodes;
    start(static_cast<int>(nodes.size()));
    for (const int node : state.placement->nodes()) send(AgentIsReady{node});
    run_all();
  }
  void notice(int node) { send(PreemptionNoticed{30s, "node 1 got SIGTERM", node}); }
};

TEST_F(LeavingTest, TheRunGoesOnWithoutTheNodeAfterTheNextCheckpoint) {
  begin_on({0, 0, 1, 1});
  notice(1);
  ASSERT_NE(did<LeaveNode>(), nullptr);
  EXPECT_EQ(did<LeaveNode>()->node, 1);
  ASSERT_NE(did<LookForRoom>(), nullptr);
  find_room(2);
  EXPECT_EQ(done<TellPreemption>().size(), 4U) << "so that a checkpoint comes soon";
  EXPECT_EQ(done<PauseReports>().size(), 4U);
  find_room(2);
  EXPECT_TRUE(actions.empty()) << "it is decided";
  pause_all();
  report_all(0, true);
  EXPECT_EQ(count_all<EndAfter>(), 4);
  size = 2;
  on_nodes = {0, 0};
  for (int i = 0; i < 4; ++i) send(WorkerFinished{0, i});
  for (const int node : {0, 1}) send(AttemptEnded{0, node});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->placement.world_size(), 2);
  EXPECT_EQ(state.failed_attempts, 0);
}

TEST_F(LeavingTest, ASecondNodeCountsToo) {
  begin_on({0, 1, 2, 2});
  notice(1);
  find_room(3);
  EXPECT_EQ(done<PauseReports>().size(), 4U);
  send(PreemptionNoticed{20s, "node 2 got SIGTERM", 2});
  ASSERT_NE(did<LookForRoom>(), nullptr);
  find_room(1);
  ASSERT_EQ(done<TellPreemption>().size(), 4U);
  EXPECT_EQ(done<TellPreemption>()[0].deadline, time + 20s) << "one worker is too few: the run ends";
  for (int i = 0; i < 4; ++i) send(WorkerFinished{0, i});
  for (int i = 0; i < 4; ++i) exit(i, 0, SIGKILL, true);
  for (const int node : {0, 1, 2}) send(AttemptEnded{0, node});
  EXPECT_EQ(count_all<StartWorkers>(), 1);
}

TEST_F(LeavingTest, AWorkerThatStartsLaterIsToldToo) {
  state.policy.workers = {2, 4};
  on_nodes = {0, 0, 1};
  start(3);
  for (const int node : {0, 1}) send(AgentIsReady{node});
  run(0);
  notice(1);
  find_room(2);
  EXPECT_EQ(done<TellPreemption>().size(), 1U);
  run(1);
  EXPECT_EQ(done<TellPreemption>().size(), 1U);
}

TEST_F(LeavingTest, ShortlyBeforeTheDeadlineItGoesOnFromWhatThereIs) {
  begin_on({0, 0, 1, 1});
  notice(1);
  find_room(3);
  for (int second = 0; second < 25; ++second) {
    EXPECT_EQ(count_all<StopWorkers>(), 0);
    time += 1s;
    for (int i = 0; i < 4; ++i) beat(i);
    send(Tick{});
  }
  EXPECT_EQ(count_all<StopWorkers>(), 1);
  size = 3;
  on_nodes = {0, 0, 2};
  for (const int node : {0, 1}) send(AttemptEnded{0, node});
  send(AgentIsReady{2});
  EXPECT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(count_all<EndRun>(), 0);
}

TEST_F(LeavingTest, IfTheOthersAreTooFewTheRunIsPreempted) {
  begin_on({0, 1, 1, 1});
  notice(1);
  find_room(1);
  EXPECT_EQ(done<TellPreemption>().size(), 4U);
  EXPECT_TRUE(state.preemption);
  EXPECT_EQ(count_all<PauseReports>(), 0);
}

TEST_F(LeavingTest, ANodeWithoutWorkersIsOnlyLeft) {
  begin_on({0, 0, 1, 1});
  notice(2);
  EXPECT_NE(did<LeaveNode>(), nullptr);
  EXPECT_EQ(actions.size(), 1U);
}

TEST_F(LeavingTest, AFixedRunIsPreempted) {
  on_nodes = {0, 1};
  start(2);
  send(AgentIsReady{1});
  run_all();
  notice(1);
  EXPECT_TRUE(state.preemption);
}

}  // namespace
}  // namespace lockstep::driver
