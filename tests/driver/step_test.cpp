#include "driver/step.h"

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class StepTest : public StepFixture {
 protected:
  void begin(int ranks, int max_failures = 0) { start(ranks, max_failures); }
};

TEST_F(StepTest, StartsAllWorkersWhenTheAgentIsReady) {
  begin(4);
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 0);
  EXPECT_EQ(state.phase, Phase::attempting);
  EXPECT_EQ(state.ranks.size(), 4U);
}

TEST_F(StepTest, AnnouncesOnceWhenAllRun) {
  begin(2);
  send(WorkerStarted{0, 0});
  send(WorkerRuns{0, 0, 1});
  EXPECT_EQ(did<AnnounceRunning>(), nullptr);
  send(WorkerStarted{0, 1});
  send(WorkerRuns{0, 1, 2});
  EXPECT_NE(did<AnnounceRunning>(), nullptr);
  EXPECT_EQ(count_all<AnnounceRunning>(), 1);
}

TEST_F(StepTest, EndsFinishedWhenAllReturnedAndAllAreGone) {
  begin(2);
  run_all();
  for (int rank : {0, 1}) send(WorkerFinished{0, rank});
  for (int rank : {0, 1}) exit(rank, 0, 0);
  EXPECT_EQ(did<EndRun>(), nullptr);
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
  EXPECT_TRUE(did<EndRun>()->failures.empty());
}

TEST_F(StepTest, OneDeathKillsTheRestAtOnceAndStartsAgain) {
  begin(4, 1);
  run_all();
  exit(2, 0, SIGKILL);
  ASSERT_NE(did<StopWorkers>(), nullptr);
  EXPECT_FALSE(did<StopWorkers>()->interrupt);
  for (int rank : {0, 1, 3}) exit(rank, 0, SIGKILL, true);
  send(AttemptEnded{0});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_TRUE(did<AnnounceFailure>()->again);
  ASSERT_EQ(did<AnnounceFailure>()->failures.size(), 1U);
  const Failure& failure = did<AnnounceFailure>()->failures[0];
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.kind, FailureKind::signal);
  EXPECT_NE(failure.message.find("SIGKILL"), std::string::npos);
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
}

TEST_F(StepTest, FailsForGoodWhenNoFailureIsLeft) {
  begin(2, 1);
  for (int attempt : {0, 1}) {
    run_all();
    exit(1, 3, 0);
    send(AttemptEnded{attempt});
  }
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
  EXPECT_EQ(did<EndRun>()->failures[0].kind, FailureKind::exit);
  EXPECT_EQ(count_all<StartWorkers>(), 2);
}

TEST_F(StepTest, WhereOnlyDeathsCountAnErrorOfTheFunctionIsTheEnd) {
  state.policy.only_deaths = true;
  begin(2, -1);
  run_all();
  exit(1, 0, SIGKILL);
  send(AttemptEnded{0});
  EXPECT_EQ(state.attempt, 1);
  run_all();
  Failure failure;
  failure.kind = FailureKind::exception;
  send(WorkerFailed{1, 0, failure});
  exit(1, 0, SIGKILL);
  send(AttemptEnded{1});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_FALSE(did<AnnounceFailure>()->again);
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(StepTest, StartsAgainForEverWithMinusOne) {
  begin(1, -1);
  for (int attempt = 0; attempt < 100; ++attempt) {
    run_all();
    exit(0, 1, 0);
    send(AttemptEnded{attempt});
    ASSERT_NE(did<StartWorkers>(), nullptr) << attempt;
  }
}

TEST_F(StepTest, AnExceptionIsNotCountedAgainAsAnExit) {
  begin(2);
  run_all();
  Failure failure;
  failure.kind = FailureKind::exception;
  failure.type = "ValueError";
  send(WorkerFailed{0, 1, failure});
  exit(1, 1, 0);
  exit(0, 0, SIGKILL, true);
  send(AttemptEnded{0});
  ASSERT_EQ(did<EndRun>()->failures.size(), 1U);
  EXPECT_EQ(did<EndRun>()->failures[0].type, "ValueError");
  EXPECT_EQ(did<EndRun>()->failures[0].rank, 1);
}

TEST_F(StepTest, FirstFailingRankComesFirstAndLaterOnesAreKept) {
  begin(3);
  run_all();
  Failure failure;
  failure.kind = FailureKind::exception;
  send(WorkerFailed{0, 2, failure});
  send(WorkerFailed{0, 0, failure});
  EXPECT_EQ(count_all<StopWorkers>(), 1);
  send(AttemptEnded{0});
  const auto& failures = did<EndRun>()->failures;
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].rank, 2);
  EXPECT_EQ(failures[1].rank, 0);
}

TEST_F(StepTest, ExitWithCodeZeroBeforeTheFunctionReturnedIsAFailure) {
  begin(1);
  run_all();
  exit(0, 0, 0);
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(AttemptEnded{0});
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(StepTest, ABadExitAfterTheFunctionReturnedIsOnlyAWarning) {
  begin(1);
  run_all();
  send(WorkerFinished{0, 0});
  exit(0, 0, SIGSEGV);
  EXPECT_NE(did<Warn>(), nullptr);
  send(AttemptEnded{0});
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(StepTest, OutOfMemoryHasItsOwnKind) {
  begin(1);
  run_all();
  send(WorkerExited{0, 0, 0, SIGKILL, true, false});
  send(AttemptEnded{0});
  EXPECT_EQ(did<EndRun>()->failures[0].kind, FailureKind::out_of_memory);
}

TEST_F(StepTest, ANativeCrashSaysSo) {
  begin(1);
  run_all();
  exit(0, 0, SIGSEGV);
  EXPECT_NE(state.failures[0].message.find("crashed"), std::string::npos);
  EXPECT_NE(state.failures[0].message.find("SIGSEGV"), std::string::npos);
}

// ------------------------------------------------------------ fencing

TEST_F(StepTest, LateMessagesOfADeadAttemptChangeNothing) {
  begin(2, -1);
  run_all();
  exit(0, 0, SIGKILL);
  send(AttemptEnded{0});
  run_all();
  const auto before = state.ranks[1].reports;
  send(Reported{0, 1, {wire::Report{}}});
  EXPECT_TRUE(actions.empty());
  send(PartWritten{0, 0, {}});
  EXPECT_TRUE(actions.empty());
  send(WorkerFinished{0, 0});
  send(WorkerExited{0, 1, 1, 0, false, false});
  send(AttemptEnded{0});
  EXPECT_TRUE(actions.empty());
  EXPECT_EQ(state.ranks[1].reports, before);
  EXPECT_EQ(state.phase, Phase::attempting);
  EXPECT_EQ(state.attempt, 1);
}

TEST_F(StepTest, MessagesOfRanksThatDoNotExistChangeNothing) {
  begin(2);
  run_all();
  report(7, 0);
  EXPECT_TRUE(actions.empty());
  report(-1, 0);
  EXPECT_TRUE(actions.empty());
}

// ------------------------------------------------------------ checkpoints

TEST_F(StepTest, RankZerosCheckpointCommitsAsSoonAsItIsDurable) {
  begin(2);
  run_all();
  report(0, 0, true);
  EXPECT_NE(did<Deliver>(), nullptr);
  EXPECT_EQ(did<Commit>(), nullptr);
  write(0, 0, {"data.json"});
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<Commit>()->report, 0);
}

TEST_F(StepTest, APartThatArrivesWhileStoppingStillCommits) {
  begin(2);
  run_all();
  report(0, 0, true);
  exit(1, 0, SIGKILL);
  write(0, 0, {"data.json"});
  EXPECT_NE(did<Commit>(), nullptr);
}

TEST_F(StepTest, WithAllRanksKeptACheckpointWaitsForEveryRunningRank) {
  state.policy.keep_all_ranks = true;
  begin(3);
  run_all();
  report(0, 0, true);
  write(0, 0, {"shard_0"});
  EXPECT_EQ(did<Commit>(), nullptr);
  report(1, 0, true);
  report(2, 0, false);  // it has no part of its own
  EXPECT_EQ(did<Commit>(), nullptr);
  write(1, 0, {"shard_1"});
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<Commit>()->parts.size(), 2U);
}

TEST_F(StepTest, WithAllRanksKeptAFinishedRankIsNotWaitedFor) {
  state.policy.keep_all_ranks = true;
  begin(2);
  run_all();
  report(0, 0, true);
  write(0, 0, {"shard_0"});
  EXPECT_EQ(did<Commit>(), nullptr);
  send(WorkerFinished{0, 1});
  EXPECT_NE(did<Commit>(), nullptr);
}

TEST_F(StepTest, WithAllRanksKeptCheckpointsCommitInTheOrderOfReports) {
  state.policy.keep_all_ranks = true;
  begin(2);
  run_all();
  for (int index : {0, 1}) {
    report(0, index, true);
    write(0, index, {"shard_0"});
  }
  report(1, 0, true);
  report(1, 1, true);
  write(1, 1, {"shard_1"});
  EXPECT_EQ(did<Commit>(), nullptr);
  write(1, 0, {"shard_1"});
  std::vector<int> committed;
  for (const Action& action : actions)
    if (const auto* commit = std::get_if<Commit>(&action)) committed.push_back(commit->report);
  EXPECT_EQ(committed, (std::vector{0, 1}));
}

TEST_F(StepTest, ACommitThatFailsIsNotTakenForOne) {
  commits = false;
  begin(2, 1);
  run_all();
  report(0, 0, true);
  send(CheckpointWanted{0, 0, 0});
  write(0, 0, {"data.json"});
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<GiveCheckpoint>(), nullptr) << "it waits for its own";
  EXPECT_EQ(state.committed, -1);
  Failure failure;
  failure.kind = FailureKind::storage;
  send(CommitFailed{0, 0, failure, false});
  EXPECT_EQ(state.committed, -1);
  EXPECT_EQ(did<AnnounceCommit>(), nullptr);
  EXPECT_EQ(did<GiveCheckpoint>(), nullptr) << "it would take an older one for its own";
  EXPECT_NE(did<StopWorkers>(), nullptr);
  send(AttemptEnded{0});
  EXPECT_NE(did<StartWorkers>(), nullptr);
}

TEST_F(StepTest, CommitsFollowEachOther) {
  commits = false;
  begin(1);
  run_all();
  for (int index : {0, 1}) {
    report(0, index, true);
    write(0, index, {"data.json"});
  }
  EXPECT_EQ(count_all<Commit>(), 1);
  send(Committed{0, 0, 7});
  ASSERT_NE(did<AnnounceCommit>(), nullptr);
  EXPECT_EQ(did<AnnounceCommit>()->seq, 7);
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<Commit>()->report, 1);
  send(Committed{0, 1, 8});
  EXPECT_EQ(state.committed, 1);
}

TEST_F(StepTest, MetricsAreCommittedWithTheCheckpointOfTheirReport) {
  begin(1);
  run_all();
  for (int index = 0; index < 2000; ++index) report(0, index, true);
  for (int index = 0; index < 2000; ++index) send(Delivered{0, 0, {{index, {{"loss", index}}}}, false});
  write(0, 0, {"data.json"});
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<Commit>()->metrics, (Value{{"loss", 0}})) << "however many wait";
}

// ------------------------------------------------------------ unequal reports

TEST_F(StepTest, UnequalReportsAreNamedAtTheEnd) {
  begin(3);
  run_all();
  for (int i = 0; i < 3; ++i) report(0, i);
  report(1, 0);
  for (int rank : {0, 1, 2}) send(WorkerFinished{0, rank});
  ASSERT_NE(did<Warn>(), nullptr);
  EXPECT_NE(did<Warn>()->message.find("ranks 1 and 2 are behind"), std::string::npos);
}

TEST_F(StepTest, EqualReportsBringNoWarning) {
  begin(2);
  run_all();
  for (int rank : {0, 1}) report(rank, 0);
  for (int rank : {0, 1}) send(WorkerFinished{0, rank});
  EXPECT_EQ(count_all<Warn>(), 0);
}

TEST_F(StepTest, ARankFarBehindIsNamedOnceWhileTheRunGoesOn) {
  begin(2);
  run_all();
  std::vector<wire::Report> many(1500);
  send(Reported{0, 0, many});
  EXPECT_NE(did<Warn>(), nullptr);
  send(Reported{0, 0, many});
  EXPECT_EQ(did<Warn>(), nullptr);
}

TEST_F(StepTest, WorkersAreKeptOnceAllHaveFinished) {
  state.policy.keep_workers = true;
  begin(2);
  run_all();
  send(WorkerFinished{0, 0});
  EXPECT_EQ(did<KeepWorkers>(), nullptr);
  send(WorkerFinished{0, 1});
  ASSERT_NE(did<KeepWorkers>(), nullptr);
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(StepTest, WorkersThatAreInterruptedAreNotKept) {
  state.policy.keep_workers = true;
  begin(1);
  run_all();
  send(Interrupted{});
  send(WorkerFinished{0, 0});
  EXPECT_EQ(count_all<KeepWorkers>(), 0);
}

TEST_F(StepTest, BytesThatMoveAreASignOfLife) {
  begin(2);
  run_all();
  time += 9s;
  send(HeartBeat{0, 0, 1});
  send(Alive{0, 1});
  time += 9s;
  send(HeartBeat{0, 0, 2});
  send(Tick{});
  EXPECT_EQ(count_all<TakeStacks>(), 0);
  time += 1s;
  send(Tick{});
  EXPECT_EQ(state.hung, std::vector<int>{1});
}

TEST_F(StepTest, TimeInWhichTheDriverDidNotListenIsNoSilence) {
  begin(1);
  run_all();
  time += 30s;
  send(WasAway{Seconds(25)});
  send(Tick{});
  EXPECT_EQ(count_all<TakeStacks>(), 0);
  time += 5s;
  send(Tick{});
  EXPECT_EQ(count_all<TakeStacks>(), 1);
}

}  // namespace
}  // namespace lockstep::driver
