// Machines that are taken away, and what counts as a failure then.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class PreemptionTest : public StepFixture {
 protected:
  void begin(int ranks, int max_failures = 0) {
    start(ranks, max_failures);
    run_all();
  }
  void notice(Seconds grace = 30s) { send(PreemptionNoticed{grace, "SIGUSR1"}); }
  std::optional<Outcome> outcome() const {
    const EndRun* end = did<EndRun>();
    return end != nullptr ? std::optional(end->outcome) : std::nullopt;
  }
  void die_all() {
    for (int rank = 0; rank < size; ++rank) exit(rank, 0, SIGKILL, true);
    send(AttemptEnded{state.attempt});
  }
};

TEST_F(PreemptionTest, EveryRankIsToldAndTheRunGoesOn) {
  begin(2);
  notice();
  ASSERT_EQ(done<TellPreemption>().size(), 2U);
  EXPECT_EQ(done<TellPreemption>()[1].rank, 1);
  EXPECT_EQ(done<TellPreemption>()[1].deadline, time + 30s);
  EXPECT_EQ(state.phase, Phase::attempting);
  notice(1s);
  EXPECT_TRUE(actions.empty()) << "the first notice counts";
}

TEST_F(PreemptionTest, ItEndsWithTheNextCheckpoint) {
  begin(2);
  report(0, 0, true);
  notice();
  write(0, 0);
  EXPECT_TRUE(done<StopWorkers>().empty()) << "this one was reported before";
  report(0, 1, true);
  write(0, 1);
  EXPECT_TRUE(done<StopWorkers>().empty()) << "this one was on its way";
  report(0, 2, true, true);
  write(0, 2);
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  die_all();
  EXPECT_EQ(outcome(), Outcome::preempted);
  EXPECT_EQ(count_all<AnnounceFailure>(), 0);
}

TEST_F(PreemptionTest, WithoutOneItEndsShortlyBeforeTheDeadline) {
  begin(2);
  notice(30s);
  EXPECT_EQ(next_deadline(state), time + 10s) << "the heartbeats'";
  for (int seconds = 5; seconds < 25; seconds += 5) {
    time += 5s;
    for (int rank : {0, 1}) beat(rank);
    send(Tick{});
    EXPECT_TRUE(done<StopWorkers>().empty()) << seconds;
  }
  EXPECT_EQ(next_deadline(state), time + 5s);
  time += 5s;
  send(Tick{});
  EXPECT_EQ(done<StopWorkers>().size(), 1U);
  die_all();
  EXPECT_EQ(outcome(), Outcome::preempted);
}

TEST_F(PreemptionTest, AFunctionThatReturnsInTimeHasFinished) {
  begin(1);
  notice();
  send(WorkerFinished{0, 0});
  die_all();
  EXPECT_EQ(outcome(), Outcome::finished);
}

TEST_F(PreemptionTest, NoAttemptFollows) {
  begin(2, 1);
  notice();
  die(1);
  send(AttemptEnded{0});
  EXPECT_EQ(outcome(), Outcome::preempted);
  EXPECT_EQ(count_all<StartWorkers>(), 1);
}

TEST_F(PreemptionTest, AFailureOfTheFunctionThatEndsTheRunStaysOne) {
  begin(2);
  notice();
  die(1);
  send(AttemptEnded{0});
  EXPECT_EQ(outcome(), Outcome::failed);
}

TEST_F(PreemptionTest, ARunThatHasNoWorkersEndsAtOnce) {
  places = false;
  start(1);
  notice();
  EXPECT_EQ(outcome(), Outcome::preempted);
}

TEST_F(PreemptionTest, AWorkerThatStartsLaterIsToldToo) {
  start(2);
  run(0);
  notice();
  EXPECT_EQ(done<TellPreemption>().size(), 1U);
  run(1);
  EXPECT_EQ(done<TellPreemption>().size(), 1U);
}

TEST_F(PreemptionTest, CtrlCKeepsItsMeaning) {
  begin(1);
  notice();
  send(Interrupted{});
  die_all();
  EXPECT_EQ(outcome(), Outcome::interrupted);
}

TEST_F(PreemptionTest, ALostNodeDoesNotCount) {
  state.policy.count_node_failures = false;
  on_nodes = {0, 1};
  start(2);
  send(AgentIsReady{1});
  run_all();
  send(AgentLost{1, "gone"});
  on_nodes = {0, 0};
  send(AttemptEnded{0, 0});
  EXPECT_EQ(state.attempt, 1);
  EXPECT_EQ(state.failed_attempts, 0);
  EXPECT_TRUE(did<AnnounceFailure>()->again);
  run_all();
  die(1);
  send(AttemptEnded{1, 0});
  EXPECT_EQ(outcome(), Outcome::failed) << "what the function does counts";
}

TEST_F(PreemptionTest, ALostNodeCountsIfItIsAskedFor) {
  state.policy.count_node_failures = true;
  on_nodes = {0, 1};
  start(2);
  send(AgentIsReady{1});
  run_all();
  send(AgentLost{1, "gone"});
  send(AttemptEnded{0, 0});
  EXPECT_EQ(outcome(), Outcome::failed);
}

TEST_F(PreemptionTest, BytesThatAreWrittenAfterTheKillDelayItsDeadline) {
  begin(1);
  die(0);
  ASSERT_EQ(state.phase, Phase::stopping);
  const auto before = next_deadline(state);
  time += 5s;
  send(Alive{0, 0});
  EXPECT_EQ(next_deadline(state), *before + 5s);
}

}  // namespace
}  // namespace lockstep::driver
