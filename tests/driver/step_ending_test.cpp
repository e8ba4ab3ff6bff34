// A run that ends early, after the same report on every rank.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class EndingTest : public StepFixture {
 protected:
  EndingTest() { settles = false; }
  void begin(int ranks) {
    start(ranks, 1);
    run_all();
  }
};

TEST_F(EndingTest, AllRanksEndAfterTheFirstReportThatAllCanKeep) {
  begin(3);
  send(StopWanted{});
  EXPECT_EQ(done<HoldReports>().size(), 3U);
  send(ReportsHeld{0, 0, 4});
  send(ReportsHeld{0, 2, 6});
  EXPECT_TRUE(done<EndAfter>().empty());
  send(ReportsHeld{0, 1, 5});
  ASSERT_EQ(done<EndAfter>().size(), 3U);
  for (const auto& told : done<EndAfter>()) EXPECT_EQ(told.reports, 6);
}

TEST_F(EndingTest, AskingAgainChangesNothing) {
  begin(1);
  send(StopWanted{});
  send(StopWanted{});
  EXPECT_TRUE(done<HoldReports>().empty());
}

TEST_F(EndingTest, ARankThatReturnsIsNotWaitedFor) {
  begin(2);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 4});
  send(WorkerFinished{0, 1});
  ASSERT_EQ(done<EndAfter>().size(), 1U);
  EXPECT_EQ(done<EndAfter>()[0].reports, 4);
}

TEST_F(EndingTest, BeforeAllRunItWaitsUntilTheyDo) {
  send(StopWanted{});
  size = 2;
  send(AgentIsReady{});
  run_all();
  EXPECT_EQ(done<HoldReports>().size(), 2U);
}

TEST_F(EndingTest, AnotherAttemptEndsTooAfterItsNextReport) {
  begin(1);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 4});
  send(WorkerExited{0, 0, 1, 0, false, false});
  send(AttemptEnded{0});
  EXPECT_FALSE(state.ending.after);
  run_all();
  EXPECT_EQ(done<HoldReports>().size(), 1U);
}

TEST_F(EndingTest, ReportsThatWereLookedAtGoOnUnlessTheRunEnds) {
  begin(2);
  report(0, 0);
  send(Delivered{0, 0, {}, false});
  EXPECT_TRUE(done<GoOn>().empty()) << "nobody decides";
  send(Delivered{0, 0, {}, true});
  ASSERT_EQ(done<GoOn>().size(), 1U);
  EXPECT_EQ(done<GoOn>()[0].reports, 1);
  send(StopWanted{});
  send(Delivered{0, 0, {}, true});
  EXPECT_TRUE(done<GoOn>().empty());
}

TEST_F(EndingTest, ARankThatNeverReportsIsInterruptedWhenTheOthersAreThrough) {
  begin(2);
  for (int index = 0; index < 5; ++index) report(0, index);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 6});
  send(ReportsHeld{0, 1, 1});
  EXPECT_TRUE(done<InterruptWorker>().empty());
  report(0, 5);
  ASSERT_EQ(next_deadline(state), time + 1s);
  time += 1s;
  send(Tick{});
  ASSERT_EQ(done<InterruptWorker>().size(), 1U);
  EXPECT_EQ(done<InterruptWorker>()[0].rank, 1);
  send(Tick{});
  EXPECT_TRUE(done<InterruptWorker>().empty());
}

TEST_F(EndingTest, ARankThatWaitsForOneThatHasEndedIsInterruptedBeforeItsBarrierFails) {
  begin(2);
  for (int index = 0; index < 5; ++index) report(0, index);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 6});
  send(ReportsHeld{0, 1, 1});
  report(0, 5);
  send(MeetingEntered{0, 1, {0, 60, {}}});
  send(WorkerFinished{0, 0});
  ASSERT_GE(actions.size(), 2U);
  ASSERT_EQ(done<InterruptWorker>().size(), 1U);
  ASSERT_EQ(done<ReleaseMeeting>().size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ReleaseMeeting>(actions.back()));
}

TEST_F(EndingTest, ARankThatIsALittleBehindIsNot) {
  begin(2);
  for (int index = 0; index < 5; ++index) report(0, index);
  for (int index = 0; index < 4; ++index) report(1, index);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 6});
  send(ReportsHeld{0, 1, 5});
  report(0, 5);
  time += 5s;
  send(Tick{});
  EXPECT_TRUE(done<InterruptWorker>().empty());
}

}  // namespace
}  // namespace lockstep::driver
