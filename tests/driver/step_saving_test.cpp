// A failed attempt whose checkpoints are still being written.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class SavingTest : public StepFixture {
 protected:
  SavingTest() { settles = false; }
  void begin(int ranks) {
    start(ranks, 1);
    run_all();
  }
};

TEST_F(SavingTest, RankZeroIsAskedAndTheOthersAreKilledAtOnce) {
  begin(3);
  die(1);
  EXPECT_EQ(state.phase, Phase::saving);
  ASSERT_EQ(done<SettleWorker>().size(), 1U);
  EXPECT_EQ(done<SettleWorker>()[0].rank, 0);
  ASSERT_EQ(done<StopWorker>().size(), 1U);
  EXPECT_EQ(done<StopWorker>()[0].rank, 2);
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(WorkerExited{0, 2, 0, SIGKILL, false, false});
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(Settled{0, 0});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_EQ(state.phase, Phase::stopping);
  EXPECT_EQ(state.failures.size(), 1U) << "the one that we killed has not failed";
}

TEST_F(SavingTest, ACheckpointUnderWayIsCommittedBeforeTheKill) {
  begin(2);
  report(0, 0, true);
  die(1);
  EXPECT_EQ(next_deadline(state), time + 10s);
  time += 9s;
  write(0, 0);
  EXPECT_EQ(done<Commit>().size(), 1U);
  EXPECT_TRUE(done<StopWorkers>().empty()) << "it may have reported more that we have not heard of";
  send(Settled{0, 0});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, AReportThatIsHeardOfAfterTheFailureCountsToo) {
  begin(2);
  die(1);
  EXPECT_EQ(next_deadline(state), time + 2s);
  report(0, 0, true);
  EXPECT_EQ(next_deadline(state), time + 10s);
  write(0, 0);
  EXPECT_EQ(done<Commit>().size(), 1U);
}

TEST_F(SavingTest, NobodyWaitsLongerThanTenSeconds) {
  begin(2);
  report(0, 0, true);
  die(1);
  time += 10s;
  send(Tick{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, NorForOneThatDoesNotAnswer) {
  begin(2);
  die(1);
  time += 2s;
  send(Tick{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, NorForOneThatDiesItself) {
  begin(2);
  report(0, 0, true);
  die(1);
  die(0);
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_EQ(state.failures.size(), 2U);
}

TEST_F(SavingTest, RankZeroThatDiesIsNotAsked) {
  begin(2);
  report(0, 0, true);
  die(0);
  EXPECT_TRUE(done<SettleWorker>().empty());
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, OneThatReturnsMeanwhileHasWrittenAll) {
  begin(2);
  die(1);
  send(WorkerFinished{0, 0});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, OneWhoseHeartDoesNotBeatIsNotAsked) {
  begin(2);
  time += 5s;
  send(HeartBeat{0, 1, 0});
  time += 5s;
  send(Tick{});
  ASSERT_EQ(state.phase, Phase::diagnosing);
  for (int rank : {0, 1}) send(WorkerStacks{0, rank, "stack"});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, WithAllRanksKeptTheyAreAllAsked) {
  state.policy.keep_all_ranks = true;
  begin(3);
  for (int rank : {0, 1, 2}) report(rank, 0, true);
  write(1, 0);
  die(1);
  EXPECT_EQ(done<SettleWorker>().size(), 2U);
  EXPECT_EQ(next_deadline(state), time + 10s);
  write(0, 0);
  send(Settled{0, 0});
  write(2, 0);
  EXPECT_EQ(done<Commit>().size(), 1U);
  send(Settled{0, 2});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(SavingTest, ACheckpointWithoutThePartOfADeadRankIsNotWaitedFor) {
  state.policy.keep_all_ranks = true;
  begin(2);
  for (int rank : {0, 1}) report(rank, 0, true);
  die(1);
  EXPECT_EQ(next_deadline(state), time + 2s) << "only for what we may not have heard of";
}

TEST_F(SavingTest, CtrlCKillsAtOnce) {
  begin(2);
  report(0, 0, true);
  die(1);
  send(Interrupted{});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
  send(AttemptEnded{0});
  ASSERT_EQ(done<EndRun>().size(), 1U);
  EXPECT_EQ(done<EndRun>()[0].outcome, Outcome::interrupted);
}

}  // namespace
}  // namespace lockstep::driver
