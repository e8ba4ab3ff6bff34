// A run that is stopped by the owner of its handle.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class StopTest : public StepFixture {
 protected:
  StopTest() { settles = false; }
  void begin(int ranks) {
    start(ranks, 3);
    run_all();
  }
  std::optional<Outcome> outcome() const {
    const EndRun* end = did<EndRun>();
    return end != nullptr ? std::optional(end->outcome) : std::nullopt;
  }
  void die_all() {
    for (int rank = 0; rank < size; ++rank) exit(rank, 0, SIGKILL, true);
    send(AttemptEnded{state.attempt});
  }
};

TEST_F(StopTest, WhatWasReportedIsKeptFirst) {
  begin(2);
  report(0, 0, true);
  send(StopRequested{true});
  EXPECT_EQ(done<SettleWorker>().size(), 1U);
  EXPECT_TRUE(done<StopWorkers>().empty());
  write(0, 0);
  EXPECT_EQ(done<Commit>().size(), 1U);
  send(Settled{0, 0});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt) << "the function is not asked";
  die_all();
  EXPECT_EQ(outcome(), Outcome::stopped);
  EXPECT_EQ(count_all<AnnounceFailure>(), 0);
  EXPECT_EQ(count_all<StartWorkers>(), 1) << "no attempt follows";
}

TEST_F(StopTest, WithoutCheckpointWorkersAreKilledAtOnce) {
  begin(2);
  report(0, 0, true);
  send(StopRequested{false});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  die_all();
  EXPECT_EQ(outcome(), Outcome::stopped);
}

TEST_F(StopTest, ASecondRequestEndsTheWait) {
  begin(1);
  report(0, 0, true);
  send(StopRequested{true});
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(StopRequested{false});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(StopTest, ALargeCheckpointIsWaitedForWhileItsRankIsAlive) {
  begin(1);
  report(0, 0, true);
  send(StopRequested{true});
  for (int i = 0; i < 60; ++i) {
    time += 1s;
    beat(0, i);
    send(Tick{});
  }
  EXPECT_EQ(count_all<StopWorkers>(), 0);
  EXPECT_EQ(next_deadline(state), time + 10s);
  time += 10s;
  send(Tick{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U) << "no heartbeat";
}

TEST_F(StopTest, WhatIsNotKnownToBeWrittenIsNotWaitedForLong) {
  begin(1);
  send(StopRequested{true});
  time += 2s;
  beat(0, 1);
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
}

TEST_F(StopTest, BeforeTheFirstAttemptNothingStarts) {
  send(StopRequested{true});
  EXPECT_EQ(outcome(), Outcome::stopped);
}

TEST_F(StopTest, AFailureOfTheSameMomentDoesNotCount) {
  begin(2);
  die(1);
  send(StopRequested{true});
  send(Settled{0, 0});
  die_all();
  EXPECT_EQ(outcome(), Outcome::stopped);
  EXPECT_TRUE(did<EndRun>()->failures.empty());
}

TEST_F(StopTest, AFunctionThatReturnsMeanwhileHasFinished) {
  begin(1);
  send(StopRequested{true});
  send(WorkerFinished{0, 0});
  exit(0, 0, 0);
  send(AttemptEnded{0});
  EXPECT_EQ(outcome(), Outcome::finished);
}

TEST_F(StopTest, ACheckpointThatCannotBeKeptIsAFailure) {
  begin(1);
  send(StopRequested{true});
  Failure failure;
  failure.kind = FailureKind::storage;
  send(DriverFailed{failure, false});
  send(Settled{0, 0});
  die_all();
  EXPECT_EQ(outcome(), Outcome::failed);
}

TEST_F(StopTest, AnAgentThatDoesNotKillIsGivenUp) {
  begin(1);
  send(StopRequested{false});
  EXPECT_EQ(next_deadline(state), time + 30s);
  time += 20s;
  send(WasAway{Seconds(20)});
  time += 10s;
  send(Tick{});
  EXPECT_EQ(count_all<GiveUpNode>(), 0) << "its answer may be unread";
  time += 20s;
  send(Tick{});
  ASSERT_EQ(done<GiveUpNode>().size(), 1U);
  EXPECT_EQ(done<GiveUpNode>()[0].node, 0);
  send(AgentLost{0, "given up"});
  EXPECT_EQ(outcome(), Outcome::stopped);
}

TEST_F(StopTest, WithoutTheHeadTheOtherNodesAreGivenUp) {
  on_nodes = {0, 1, 2};
  start(3, 0);
  for (const int node : {1, 2}) send(AgentIsReady{node});
  run_all();
  send(StopRequested{false});
  send(AttemptEnded{0, 0});
  time += 30s;
  send(Tick{});
  ASSERT_EQ(done<GiveUpNode>().size(), 2U);
  send(AgentLost{1, "given up"});
  send(AgentLost{2, "given up"});
  EXPECT_EQ(outcome(), Outcome::stopped);
}

TEST_F(StopTest, AnInterruptHasItsGraceBeforeTheAgentIsGivenUp) {
  begin(1);
  send(Interrupted{});
  EXPECT_EQ(next_deadline(state), time + 40s);
  time += 5s;
  send(Interrupted{});
  EXPECT_EQ(next_deadline(state), time + 30s) << "killed at once";
  time += 30s;
  send(Tick{});
  EXPECT_EQ(done<GiveUpNode>().size(), 1U);
  send(AgentLost{0, "given up"});
  EXPECT_EQ(outcome(), Outcome::interrupted);
}

TEST_F(StopTest, AFailureOfTheDriverDuringAnInterruptKillsAndStaysTheOutcome) {
  begin(1);
  send(Interrupted{});
  EXPECT_TRUE(done<StopWorkers>().at(0).interrupt);
  Failure failure;
  failure.kind = FailureKind::storage;
  send(DriverFailed{failure, false});
  ASSERT_EQ(done<StopWorkers>().size(), 1U);
  EXPECT_FALSE(done<StopWorkers>()[0].interrupt);
  send(Interrupted{});
  die_all();
  EXPECT_EQ(outcome(), Outcome::failed);
}

TEST_F(StopTest, ACallbackThatRaisesDuringAnInterruptChangesNothing) {
  begin(1);
  send(Interrupted{});
  Failure failure;
  failure.kind = FailureKind::callback;
  failure.message = "boom";
  send(DriverFailed{failure, true});
  ASSERT_NE(did<Warn>(), nullptr);
  EXPECT_EQ(did<Warn>()->message, "boom");
  EXPECT_EQ(did<StopWorkers>(), nullptr);
  die_all();
  EXPECT_EQ(outcome(), Outcome::interrupted);
}

TEST_F(StopTest, AnInterruptedCallbackIsNotASecondSignal) {
  begin(1);
  send(CallbackInterrupted{});
  EXPECT_TRUE(done<StopWorkers>().at(0).interrupt);
  send(Interrupted{});
  EXPECT_TRUE(done<StopWorkers>().empty()) << "the signal that interrupted the callback";
  send(CallbackInterrupted{});
  EXPECT_TRUE(done<StopWorkers>().empty());
  send(Interrupted{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  die_all();
  EXPECT_EQ(outcome(), Outcome::interrupted);
}

TEST_F(StopTest, CtrlCWins) {
  begin(1);
  send(Interrupted{});
  send(StopRequested{false});
  die_all();
  EXPECT_EQ(outcome(), Outcome::interrupted);
}

}  // namespace
}  // namespace lockstep::driver
