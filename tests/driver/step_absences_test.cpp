// Workers that replace others, and what the others do until those have found them.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class AbsencesTest : public StepFixture {
 protected:
  void begin(int ranks) {
    state.policy.replace_workers = true;
    state.policy.regroups = true;
    start(ranks, -1);
    run_all();
  }
  /// `rank` dies after `reports` reports of all, and the new one runs.
  void replace(int rank, int reports = 0) {
    for (int index = 0; index < reports; ++index)
      for (int i = 0; i < size; ++i) report(i, index);
    die(rank);
    ASSERT_NE(did<ReplaceWorker>(), nullptr);
    run(rank);
  }
  void report_many(int rank, int first, int count) {
    std::vector<wire::Report> reports(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) reports[static_cast<std::size_t>(i)].index = first + i;
    send(Reported{state.attempt, rank, std::move(reports)});
  }
  RankState& rank(int number) { return state.ranks[static_cast<std::size_t>(number)]; }
};

TEST_F(AbsencesTest, AReplacedRankIsAbsentUntilItHasFoundTheOthers) {
  begin(2);
  EXPECT_FALSE(rank(1).absent);
  replace(1);
  EXPECT_TRUE(rank(1).absent);
  EXPECT_TRUE(rank(1).replaces);
  send(RankJoined{0, 1});
  EXPECT_FALSE(rank(1).absent);
  EXPECT_TRUE(actions.empty()) << "the others waited for it";
}

TEST_F(AbsencesTest, WithoutAServiceNobodyIsAbsent) {
  begin(2);
  state.policy.regroups = false;
  replace(1);
  EXPECT_FALSE(rank(1).absent);
}

TEST_F(AbsencesTest, TheNewWorkerIsAnnounced) {
  begin(2);
  EXPECT_EQ(count_all<AnnounceRank>(), 0);
  replace(1);
  ASSERT_EQ(count_all<AnnounceRank>(), 1);
  EXPECT_EQ(did<AnnounceRank>()->rank, 1);
  EXPECT_EQ(did<AnnounceRank>()->pid, 101);
}

TEST_F(AbsencesTest, TheOthersGoOnWithoutItAndItComesBackWhereTheyAre) {
  begin(2);
  replace(1, 2);
  send(RankLeft{0, 1});
  ASSERT_NE(did<AnnounceAway>(), nullptr);
  report_many(0, 2, 3);
  send(RankJoined{0, 1});
  ASSERT_NE(did<AnnounceBack>(), nullptr);
  EXPECT_EQ(rank(1).reports, 5);
  EXPECT_EQ(rank(1).missed, 3);
  report(1, 2);  // as it counts itself
  ASSERT_NE(did<Deliver>(), nullptr);
  EXPECT_EQ(did<Deliver>()->reports.front().index, 5);
}

TEST_F(AbsencesTest, OneThatIsAwayStaysAwayWhenItDiesAgain) {
  begin(3);
  replace(1);
  send(RankLeft{0, 1});
  die(1);
  ASSERT_NE(did<ReplaceWorker>(), nullptr);
  EXPECT_TRUE(did<ReplaceWorker>()->away);
  send(RankJoined{0, 1});
  EXPECT_NE(did<AnnounceBack>(), nullptr);
  die(2);
  EXPECT_FALSE(did<ReplaceWorker>()->away);
}

TEST_F(AbsencesTest, AnAbsentRankIsNeverFarBehind) {
  begin(2);
  replace(1);
  for (int first = 0; first < 3000; first += 400) report_many(0, first, 400);
  EXPECT_EQ(count_all<Warn>(), 0);
  EXPECT_LT(rank(0).reports - rank(1).reports, 500);
  send(RankJoined{0, 1});
  for (int first = 3200; first < 5000; first += 400) report_many(0, first, 400);
  EXPECT_EQ(count_all<Warn>(), 1) << "now it is one of them";
}

TEST_F(AbsencesTest, NobodyWaitsForACheckpointOfAnAbsentRank) {
  begin(2);
  replace(0, 1);
  report(1, 1);
  send(CheckpointWanted{0, 1, 1});
  EXPECT_NE(did<GiveCheckpoint>(), nullptr) << "rank 0 would have made it";
  EXPECT_EQ(rank(0).missed, 1);
}

TEST_F(AbsencesTest, CheckpointsAreNumberedAsAllCount) {
  begin(2);
  replace(0, 1);
  send(RankLeft{0, 0});
  report_many(1, 1, 4);
  send(RankJoined{0, 0});
  report(0, 1, true);
  EXPECT_TRUE(rank(0).announced.contains(5));
  send(CheckpointWanted{0, 0, 1});
  EXPECT_EQ(rank(0).wants, 5);
  write(0, 1);
  ASSERT_NE(did<Commit>(), nullptr);
  EXPECT_EQ(did<Commit>()->report, 5);
  EXPECT_NE(did<GiveCheckpoint>(), nullptr);
}

TEST_F(AbsencesTest, ARunThatEndsEarlyTellsEachRankItsOwnNumber) {
  begin(2);
  replace(1, 1);
  send(RankLeft{0, 1});
  report_many(0, 1, 4);
  send(RankJoined{0, 1});
  send(StopWanted{});
  send(ReportsHeld{0, 0, 6});
  send(ReportsHeld{0, 1, 2});
  const auto told = done<EndAfter>();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].reports, 6);
  EXPECT_EQ(told[1].reports, 2);
}

TEST_F(AbsencesTest, WhenTheOthersHaveFinishedOneThatIsAwayEndsWithThem) {
  begin(3);
  replace(1, 1);
  send(RankLeft{0, 1});
  for (int i : {0, 2}) report(i, 1);
  for (int i : {0, 2}) meet(i, 0);
  send(RankNeedless{0, 1});
  EXPECT_NE(did<AnnounceNeedless>(), nullptr);
  ASSERT_NE(did<StopWorker>(), nullptr);
  EXPECT_EQ(did<StopWorker>()->rank, 1);
  EXPECT_EQ(done<ReleaseMeeting>().size(), 3U) << "they leave together";
  exit(1, 0, SIGKILL);
  EXPECT_EQ(state.phase, Phase::attempting) << "we ended it";
  EXPECT_EQ(did<ReplaceWorker>(), nullptr);
  send(WorkerFinished{0, 0});
  EXPECT_EQ(count_all<AnnounceFinished>(), 1);
  send(WorkerFinished{0, 2});
  EXPECT_EQ(count_all<AnnounceFinished>(), 3);
  EXPECT_EQ(count_all<Warn>(), 0) << "nobody is behind, and nobody died";
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(AbsencesTest, ANeedlessWorkerThatStartsLateIsEndedToo) {
  begin(2);
  die(1);
  send(RankLeft{0, 1});
  send(RankNeedless{0, 1});
  send(WorkerStarted{0, 1});
  ASSERT_NE(did<StopWorker>(), nullptr);
  EXPECT_EQ(did<StopWorker>()->rank, 1);
}

TEST_F(AbsencesTest, NewsOfOtherAttemptsAndRanksAreRefused) {
  begin(2);
  for (const auto& [attempt, number] : {std::pair{1, 0}, {0, 2}, {0, -1}}) {
    send(RankLeft{attempt, number});
    EXPECT_TRUE(actions.empty());
    send(RankJoined{attempt, number});
    EXPECT_TRUE(actions.empty());
    send(RankNeedless{attempt, number});
    EXPECT_TRUE(actions.empty());
  }
}

}  // namespace
}  // namespace lockstep::driver
