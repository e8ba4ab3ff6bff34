// Runs whose workers are replaced one by one.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class StepReplaceTest : public StepFixture {
 protected:
  void begin(int ranks, int max_failures) {
    state.policy.replace_workers = true;
    start(ranks, max_failures);
    run_all();
  }
};

TEST_F(StepReplaceTest, OneThatDiesIsStartedAgainAlone) {
  begin(3, 1);
  die(1);
  ASSERT_NE(did<ReplaceWorker>(), nullptr);
  EXPECT_EQ(did<ReplaceWorker>()->rank, 1);
  EXPECT_EQ(did<ReplaceWorker>()->attempt, 0);
  EXPECT_NE(did<ReplaceWorker>()->failure.message.find("SIGKILL"), std::string::npos);
  EXPECT_EQ(did<StopWorkers>(), nullptr);
  EXPECT_EQ(state.phase, Phase::attempting);
  EXPECT_FALSE(state.ranks[1].started);
  run(1);
  EXPECT_EQ(count_all<AnnounceRunning>(), 1);
  for (int rank : {0, 1, 2}) send(WorkerFinished{0, rank});
  for (int rank : {0, 1, 2}) send(WorkerExited{0, rank, 0, 0, false, false});
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(StepReplaceTest, EveryDeathTakesAFailure) {
  begin(2, 1);
  die(1);
  EXPECT_NE(did<ReplaceWorker>(), nullptr);
  run(1);
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(WorkerExited{0, 0, 0, SIGKILL, false, true});
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(StepReplaceTest, ADeathThatIsTheEndOfTheAttemptTakesOneFailure) {
  begin(2, 1);
  die(0);
  ASSERT_NE(did<ReplaceWorker>(), nullptr);
  EXPECT_EQ(did<ReplaceWorker>()->counts, 1);
  send(CannotReplace{0, did<ReplaceWorker>()->counts, did<ReplaceWorker>()->failure});
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(WorkerExited{0, 1, 0, SIGKILL, false, true});
  send(AttemptEnded{0});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_EQ(did<AnnounceFailure>()->failures.size(), 1U);
  EXPECT_EQ(did<AnnounceFailure>()->failures.front().rank, 0);
  ASSERT_NE(did<StartWorkers>(), nullptr) << "one failure is allowed";
  EXPECT_EQ(state.failed_attempts, 1);
}

TEST_F(StepReplaceTest, WithoutASurvivorTheAttemptHasFailed) {
  begin(2, 2);
  die(0);
  EXPECT_NE(did<ReplaceWorker>(), nullptr);
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(AttemptEnded{0});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
}

TEST_F(StepReplaceTest, NotWhenARankHasReturnedOrWaits) {
  begin(3, 5);
  send(MeetingEntered{0, 0, {0, 60, {}}});
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(AttemptEnded{0});
  for (int rank : {0, 1, 2}) run(rank);
  send(WorkerFinished{1, 2});
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  EXPECT_NE(did<StopWorkers>(), nullptr);
}

TEST_F(StepReplaceTest, AnExceptionIsAFailureOfTheAttempt) {
  begin(2, 5);
  Failure failure;
  failure.message = "no";
  send(WorkerFailed{0, 1, failure});
  EXPECT_NE(did<StopWorkers>(), nullptr);
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
}

TEST_F(StepReplaceTest, WithoutThePolicyNothingIsReplaced) {
  begin(2, 5);
  state.policy.replace_workers = false;
  die(1);
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  EXPECT_NE(did<StopWorkers>(), nullptr);
}

TEST_F(StepReplaceTest, ReportsAndMeetingsGoOnFromWhereTheOthersAre) {
  begin(2, 5);
  for (int rank : {0, 1}) send(MeetingEntered{0, rank, {0, 60, {}}});
  for (int index = 0; index < 7; ++index) report(1, index);
  for (int index = 0; index < 9; ++index) report(0, index);
  die(0);
  ASSERT_NE(did<ReplaceWorker>(), nullptr);
  EXPECT_EQ(did<ReplaceWorker>()->first_report, 7);
  EXPECT_EQ(did<ReplaceWorker>()->first_meeting, 1);
  run(0);
  for (int rank : {0, 1}) send(MeetingEntered{0, rank, {1, 60, {}}});
  EXPECT_EQ(count_all<ReleaseMeeting>(), 4);
  for (int rank : {0, 1}) report(rank, 7);
  for (int rank : {0, 1}) send(WorkerFinished{0, rank});
  EXPECT_EQ(count_all<Warn>(), 0) << "nobody is behind";
}

TEST_F(StepReplaceTest, NobodyWaitsForACheckpointThatDiedWithItsRank) {
  begin(2, 5);
  report(0, 0, true);
  report(1, 0);
  send(CheckpointWanted{0, 1, 0});
  EXPECT_EQ(did<GiveCheckpoint>(), nullptr);
  die(0);
  ASSERT_NE(did<GiveCheckpoint>(), nullptr);
  EXPECT_EQ(did<GiveCheckpoint>()->rank, 1);
}

TEST_F(StepReplaceTest, AStuckRankIsEndedAndReplacedForNothing) {
  begin(4, 1);
  die(1);
  send(RankStuck{0, 3});
  ASSERT_NE(did<StopWorker>(), nullptr);
  EXPECT_EQ(did<StopWorker>()->rank, 3);
  send(RankStuck{0, 3});
  EXPECT_TRUE(actions.empty()) << "it is being ended already";
  die(3);
  ASSERT_NE(did<ReplaceWorker>(), nullptr);
  EXPECT_EQ(did<ReplaceWorker>()->rank, 3);
  EXPECT_EQ(did<ReplaceWorker>()->failure.kind, FailureKind::hang);
  EXPECT_EQ(state.failed_attempts, 1);
}

TEST_F(StepReplaceTest, StuckRanksOfOtherAttemptsAreRefused) {
  begin(2, 1);
  send(RankStuck{1, 0});
  send(RankStuck{0, 2});
  EXPECT_TRUE(actions.empty());
}

TEST_F(StepReplaceTest, AReplacedRankIsWatchedForItsHeartbeatAgain) {
  begin(2, 1);
  die(1);
  time += 9s;
  send(HeartBeat{0, 0, 1});
  run(1);
  time += 5s;
  send(HeartBeat{0, 0, 2});
  send(Tick{});
  EXPECT_EQ(state.phase, Phase::attempting);
  time += 6s;
  send(HeartBeat{0, 0, 3});
  send(Tick{});
  EXPECT_EQ(state.phase, Phase::diagnosing);
  EXPECT_EQ(state.hung, std::vector<int>{1});
}

}  // namespace
}  // namespace lockstep::driver
