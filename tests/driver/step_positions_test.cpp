#include "step_fixture.h"

namespace lockstep::driver {
namespace {

/// Checkpoints with positions of data sets, which count on all ranks having read as much.
class StepPositionsTest : public StepFixture {
 protected:
  void begin(int ranks, int max_failures = 0) {
    start(ranks, max_failures);
    run_all();
  }
  void checkpoint(int index, const std::vector<std::string>& files = {"data.json", "lockstep.json"}) {
    report(0, index, true);
    write(0, index, files);
  }
  std::vector<int> committed() const {
    std::vector<int> reports;
    for (const Action& action : all)
      if (const auto* commit = std::get_if<Commit>(&action)) reports.push_back(commit->report);
    return reports;
  }
};

TEST_F(StepPositionsTest, ACheckpointWaitsUntilEveryRankHasMadeItsReport) {
  begin(3);
  checkpoint(0);
  checkpoint(1);
  report(1, 0);
  EXPECT_EQ(committed(), std::vector<int>());
  report(2, 0);
  EXPECT_EQ(committed(), std::vector{0});
  report(2, 1);
  EXPECT_EQ(committed(), std::vector{0});
  send(WorkerFinished{0, 1});
  EXPECT_EQ(committed(), (std::vector{0, 1}));
}

TEST_F(StepPositionsTest, WithoutPositionsItWaitsForNobody) {
  begin(2);
  checkpoint(0, {"data.json"});
  EXPECT_EQ(committed(), std::vector{0});
}

TEST_F(StepPositionsTest, PositionsInMemoryCountToo) {
  begin(2);
  wire::CheckpointWritten written;
  written.contents.emplace_back("lockstep.json", Bytes{});
  report(0, 0, true);
  send(PartWritten{0, 0, std::move(written)});
  EXPECT_EQ(committed(), std::vector<int>());
  report(1, 0);
  EXPECT_EQ(committed(), std::vector{0});
}

TEST_F(StepPositionsTest, WhatARankHadNotReachedWhenItDiedIsNotCommitted) {
  begin(2, 1);
  checkpoint(0);
  report(1, 0);
  checkpoint(1);
  checkpoint(2);
  die(1);
  time += 60s;
  send(Tick{});
  EXPECT_EQ(committed(), std::vector{0});
}

TEST_F(StepPositionsTest, RanksThatComeToABarrierNeedNotReport) {
  begin(2);
  meet(1, 0);
  checkpoint(0);  // rank 1 waits after it
  EXPECT_EQ(committed(), std::vector{0});
  meet(0, 0);
  checkpoint(1);
  EXPECT_EQ(committed(), std::vector{0});
  meet(1, 1);
  EXPECT_EQ(committed(), (std::vector{0, 1}));
  meet(0, 1);
  checkpoint(2);
  EXPECT_EQ(committed(), (std::vector{0, 1}));
}

TEST_F(StepPositionsTest, ACheckpointBeforeABarrierMayBeWrittenAfterIt) {
  begin(2);
  report(0, 0, true);
  meet(0, 0);
  meet(1, 0);
  write(0, 0, {"lockstep.json"});
  EXPECT_EQ(committed(), std::vector{0});
}

TEST_F(StepPositionsTest, ARankThatDoesNotReportIsWaitedForOnce) {
  begin(2);
  checkpoint(0);
  time += 1s;
  checkpoint(1);
  EXPECT_EQ(next_deadline(state), time + 4s);
  time += 4s;
  send(Tick{});
  EXPECT_EQ(committed(), (std::vector{0, 1}));
  checkpoint(2);
  EXPECT_EQ(committed(), (std::vector{0, 1, 2}));
  for (int index = 0; index < 3; ++index) report(1, index);
  checkpoint(3);  // it has caught up
  EXPECT_EQ(committed(), (std::vector{0, 1, 2}));
  report(1, 3);
  EXPECT_EQ(committed(), (std::vector{0, 1, 2, 3}));
}

TEST_F(StepPositionsTest, WhoAsksForACheckpointWaitsForTheOtherRanks) {
  begin(2);
  checkpoint(0);
  send(CheckpointWanted{0, 0, 0});
  EXPECT_EQ(did<GiveCheckpoint>(), nullptr);
  report(1, 0);
  EXPECT_NE(did<GiveCheckpoint>(), nullptr);
}

TEST_F(StepPositionsTest, ARunThatIsStoppedKeepsTheCheckpointOfTheOnlyRankThatReports) {
  begin(2);
  report(0, 0, true);
  settles = false;
  send(StopRequested{true});
  write(0, 0, {"lockstep.json"});
  EXPECT_EQ(committed(), std::vector{0});
}

}  // namespace
}  // namespace lockstep::driver
