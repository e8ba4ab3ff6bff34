#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class StepHooksTest : public StepFixture {
 protected:
  /// All ranks run, and none waits for calls yet.
  void begin(int ranks, int max_failures = 0) {
    state.policy.hooks = true;
    start(ranks, max_failures);
    run_all();
  }
  void wait_for_calls(int rank) { send(CallsAwaited{state.attempt, rank}); }
  void wait_for_calls() {
    for (int rank = 0; rank < static_cast<int>(state.ranks.size()); ++rank) wait_for_calls(rank);
  }
  void call(std::vector<int> ranks) { send(CallMade{state.attempt, std::move(ranks), {7}}); }
  static Failure failure() {
    Failure made;
    made.kind = FailureKind::callback;
    made.message = "Greeter.on_start() raised: no port";
    return made;
  }
};

TEST_F(StepHooksTest, HooksRunWhenAllRanksWait) {
  begin(2);
  wait_for_calls(1);
  EXPECT_EQ(did<RunHooks>(), nullptr);
  wait_for_calls(0);
  ASSERT_NE(did<RunHooks>(), nullptr);
  EXPECT_FALSE(did<RunHooks>()->after);
  send(HooksDone{0});
  EXPECT_EQ(done<EndCalls>().size(), 2U);
}

TEST_F(StepHooksTest, ACallGoesToTheRanksThatAreAskedAndItsAnswerRunsNoHooksAgain) {
  begin(3);
  wait_for_calls();
  call({0, 2});
  ASSERT_EQ(done<MakeCall>().size(), 2U);
  EXPECT_EQ(done<MakeCall>()[1].rank, 2);
  EXPECT_EQ(done<MakeCall>()[1].call.payload, (Bytes{7}));
  wait_for_calls(0);
  wait_for_calls(2);
  EXPECT_EQ(count_all<RunHooks>(), 1);
}

TEST_F(StepHooksTest, TheyRunAgainAfterTheFunctions) {
  begin(2);
  wait_for_calls();
  send(HooksDone{0});
  wait_for_calls();
  ASSERT_NE(did<RunHooks>(), nullptr);
  EXPECT_TRUE(did<RunHooks>()->after);
  send(HooksDone{0});
  EXPECT_EQ(done<EndCalls>().size(), 2U);
  for (int rank : {0, 1}) send(WorkerFinished{0, rank});
  EXPECT_EQ(count_all<RunHooks>(), 2);
}

TEST_F(StepHooksTest, ARankThatWasInterruptedIsNotWaitedForAfterTheFunctions) {
  begin(2);
  wait_for_calls();
  send(HooksDone{0});
  wait_for_calls(0);
  send(WorkerFinished{0, 1});
  ASSERT_NE(did<RunHooks>(), nullptr);
  send(HooksDone{0});
  ASSERT_EQ(done<EndCalls>().size(), 1U);
  EXPECT_EQ(done<EndCalls>()[0].rank, 0);
}

TEST_F(StepHooksTest, AHookThatFailsIsAFailureLikeAnyOther) {
  begin(2, 1);
  wait_for_calls();
  send(HookFailed{0, "Greeter.on_start()", failure()});
  ASSERT_NE(did<StopWorkers>(), nullptr);
  EXPECT_EQ(did<EndCalls>(), nullptr);
  send(AttemptEnded{0});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_TRUE(did<AnnounceFailure>()->again);
  EXPECT_EQ(did<AnnounceFailure>()->failures[0].kind, FailureKind::callback);
  EXPECT_EQ(state.attempt, 1);
  run_all();
  wait_for_calls();
  ASSERT_NE(did<RunHooks>(), nullptr);
  EXPECT_EQ(did<RunHooks>()->attempt, 1);
  EXPECT_FALSE(did<RunHooks>()->after) << "it is another attempt";
  send(HookFailed{1, "Greeter.on_start()", failure()});
  send(AttemptEnded{1});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(StepHooksTest, ADeathInAHookNamesBothAndCountsOnce) {
  begin(2);
  wait_for_calls();
  call({0, 1});
  die(1);
  send(HookFailed{0, "Greeter.on_start()", failure()});
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  ASSERT_EQ(did<EndRun>()->failures.size(), 1U);
  const Failure& told = did<EndRun>()->failures[0];
  EXPECT_EQ(told.rank, 1);
  EXPECT_NE(told.message.find("SIGKILL, while Greeter.on_start() ran"), std::string::npos) << told.message;
}

TEST_F(StepHooksTest, AnswersOfHooksOfADeadAttemptAreRefused) {
  begin(1, 1);
  wait_for_calls();
  die(0);
  send(AttemptEnded{0});
  run_all();
  wait_for_calls();
  EXPECT_TRUE(state.in_hooks);
  for (const Event& late : {Event(HooksDone{0}), Event(HookFailed{0, "x", failure()}), Event(CallMade{0, {0}, {}})}) {
    send(late);
    EXPECT_TRUE(actions.empty());
  }
  EXPECT_TRUE(state.in_hooks);
}

TEST_F(StepHooksTest, CtrlCWhileRanksWaitEndsTheRun) {
  begin(2);
  wait_for_calls();
  send(Interrupted{});
  ASSERT_NE(did<StopWorkers>(), nullptr);
  EXPECT_TRUE(did<StopWorkers>()->interrupt);
  send(HookFailed{0, "Greeter.on_start()", failure()});
  EXPECT_TRUE(actions.empty());
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::interrupted);
}

TEST_F(StepHooksTest, WhoWaitsForCallsDoesNotHangButWhoMakesOneMay) {
  state.policy.hang_timeout = Seconds{5};
  begin(2);
  wait_for_calls();
  const auto pass = [&](Seconds seconds) {
    time += ticks(seconds);
    for (int rank : {0, 1}) beat(rank);
    send(Tick{});
  };
  pass(60s);
  EXPECT_EQ(state.phase, Phase::attempting);
  call({1});
  pass(6s);
  EXPECT_EQ(state.phase, Phase::diagnosing);
  EXPECT_EQ(state.hung, (std::vector{1}));
}

TEST_F(StepHooksTest, WhoWaitsForCallsMustStillBeatItsHeart) {
  begin(2);
  wait_for_calls();
  time += ticks(state.policy.heartbeat_timeout + 1s);
  beat(0);
  send(Tick{});
  EXPECT_EQ(state.hung, (std::vector{1}));
}

TEST_F(StepHooksTest, NobodyWaitsInABarrierForARankThatWaitsForCalls) {
  begin(2);
  meet(0, 0);
  wait_for_calls(1);
  ASSERT_NE(did<ReleaseMeeting>(), nullptr);
  EXPECT_FALSE(did<ReleaseMeeting>()->done.error.empty());
}

TEST_F(StepHooksTest, ARankThatWaitsForCallsIsNoLaggard) {
  begin(2);
  wait_for_calls();
  send(HooksDone{0});
  for (int i = 0; i < 4; ++i) report(0, i);
  wait_for_calls(1);
  send(StopWanted{});
  send(ReportsHeld{0, 0, 4});
  send(ReportsHeld{0, 1, 0});
  time += ticks(2s);
  send(Tick{});
  EXPECT_EQ(count_all<InterruptWorker>(), 0);
}

}  // namespace
}  // namespace lockstep::driver
