#include "driver/run_control.h"
#include "run_loop_fixture.h"

namespace lockstep::driver {
namespace {

/// Does in its hooks what the test says, and notes each.
class NotingHooks : public Hooks {
 public:
  std::string name() const override { return "Greeter." + notes.back() + "()"; }
  void before(WorkerCalls& workers, bool kept) override { run(kept ? "before, kept" : "before", before_body, workers); }
  void after(WorkerCalls& workers) override { run("after", after_body, workers); }

  std::vector<std::string> notes;
  std::function<void(WorkerCalls&)> before_body, after_body;

 private:
  void run(const std::string& hook, const std::function<void(WorkerCalls&)>& body, WorkerCalls& workers) {
    notes.push_back(hook);
    if (body) body(workers);
  }
};

class RunLoopHooksTest : public RunLoopTest {
 protected:
  RunLoopHooksTest() { plan.wiring.hooks = &hooks; }
  void wait_for_calls() {
    for (const int rank : cluster.alive) cluster.say_of(rank, wire::CallsAwaited{});
  }
  using Notes = std::vector<std::string>;

  NotingHooks hooks;
};

TEST_F(RunLoopHooksTest, HooksCallOnTheWorkersBeforeAndAfterTheFunctions) {
  hooks.before_body = [&](WorkerCalls& workers) {
    EXPECT_EQ(workers.call(std::nullopt, {1}), (std::vector<Bytes>{{1}, {1}}));
    EXPECT_EQ(workers.call(1, {2}), (std::vector<Bytes>{{2}}));
    EXPECT_TRUE(cluster.sent<wire::CallsOver>().empty());
  };
  hooks.after_body = [&](WorkerCalls& workers) {
    EXPECT_EQ(workers.call(std::nullopt, {3}), (std::vector<Bytes>{{3}, {3}}));
  };
  then([&] {
    EXPECT_EQ(cluster.sent<wire::CallsOver>().size(), 2U);
    cluster.report(0, 0, {{"loss", 3.0}});
  });
  then([&] { wait_for_calls(); });
  then([&] {
    EXPECT_EQ(cluster.sent<wire::CallsOver>().size(), 4U);
    cluster.finish_all();
  });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(hooks.notes, (Notes{"before", "after"}));
  EXPECT_EQ(cluster.sent<wire::Call>().size(), 5U);
}

TEST_F(RunLoopHooksTest, WithoutHooksNobodyWaitsForCalls) {
  plan.wiring.hooks = nullptr;
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(cluster.sent<wire::StartAttempt>()[0].workers[0].begin.at("calls"), false);
}

TEST_F(RunLoopHooksTest, AHookThatFailsIsTriedAgain) {
  plan.options.run.failure.max_failures = 1;
  hooks.before_body = [&](WorkerCalls& workers) {
    if (hooks.notes.size() == 1) throw Error("no port");
    workers.call(0, {1});
  };
  then([&] {
    EXPECT_EQ(cluster.attempt, 1);
    wait_for_calls();
  });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::callback);
  EXPECT_EQ(result.failures[0].rank, -1);
  EXPECT_EQ(result.failures[0].message, "[backend] Greeter.before() raised: no port");
  EXPECT_EQ(hooks.notes, (Notes{"before", "before", "after"}));
  EXPECT_EQ(record().at("attempts").size(), 2U);
}

TEST_F(RunLoopHooksTest, AfterAFailureTheLastHookReachesNobody) {
  hooks.before_body = [](WorkerCalls&) { throw Error("no port"); };
  std::string told;
  hooks.after_body = [&](WorkerCalls& workers) {
    try {
      workers.call(std::nullopt, {1});
    } catch (const EngineError& error) {
      told = error.what();
    }
  };
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  EXPECT_NE(result.error.find("Greeter.before() raised: no port"), std::string::npos);
  EXPECT_EQ(hooks.notes, (Notes{"before", "after"}));
  EXPECT_NE(told.find("cannot be called"), std::string::npos);
  EXPECT_TRUE(cluster.sent<wire::Call>().empty());
}

TEST_F(RunLoopHooksTest, AWorkerThatDiesInACallEndsTheAttempt) {
  plan.options.run.failure.max_failures = 1;
  cluster.answers_calls = false;
  int ended = 0;
  hooks.before_body = [&](WorkerCalls& workers) {
    try {
      workers.call(std::nullopt, {1});
    } catch (const EngineError&) {
      ++ended;
      throw;
    }
  };
  then([&] {
    cluster.say_of(0, wire::CallDone{});
    cluster.kill(1);
    cluster.answers_calls = true;
  });
  then([&] { wait_for_calls(); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(ended, 1);
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].rank, 1);
  EXPECT_EQ(result.failures[0].message, "the worker was killed by SIGKILL, while Greeter.before() ran");
}

TEST_F(RunLoopHooksTest, AHeadThatIsLostInACallEndsTheAttempt) {
  plan.options.run.failure.max_failures = 1;
  cluster.answers_calls = false;
  reconnect = [&] { return cluster.connect(); };
  hooks.before_body = [&](WorkerCalls& workers) { workers.call(std::nullopt, {1}); };
  then([&] {
    cluster.hang_up();
    cluster.answers_calls = true;
  });
  then([&] {
    EXPECT_EQ(cluster.attempt, 1);
    wait_for_calls();
  });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(hooks.notes, (Notes{"before", "before", "after"}));
}

TEST_F(RunLoopHooksTest, CtrlCEndsACallAndTheRun) {
  sys::SignalWatch signals;
  plan.wiring.signals = &signals;
  cluster.answers_calls = false;
  hooks.before_body = [&](WorkerCalls& workers) { EXPECT_THROW(workers.call(std::nullopt, {1}), EngineError); };
  then([&] { std::raise(SIGINT); });
  EXPECT_EQ(run().state, "interrupted");
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_TRUE(cluster.sent<wire::StopAttempt>()[0].interrupt);
  EXPECT_TRUE(cluster.sent<wire::CallsOver>().empty());
  EXPECT_EQ(hooks.notes, (Notes{"before", "after"}));
}

TEST_F(RunLoopHooksTest, AStopEndsACallAndTheRun) {
  RunControl control;
  plan.wiring.control = &control;
  cluster.answers_calls = false;
  hooks.before_body = [&](WorkerCalls& workers) { workers.call(0, {1}); };
  then([&] { control.request_stop(true); });
  const Result result = run();
  EXPECT_EQ(result.state, "stopped");
  EXPECT_TRUE(result.failures.empty());
  EXPECT_EQ(hooks.notes, (Notes{"before", "after"}));
}

TEST_F(RunLoopHooksTest, AnErrorOfTheLastHookLeavesTheRun) {
  hooks.after_body = [](WorkerCalls&) { throw Error("will not end"); };
  then([&] { wait_for_calls(); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  EXPECT_TRUE(result.failures.empty());
}

TEST_F(RunLoopHooksTest, ARankThatIsNotThereCannotBeCalled) {
  hooks.before_body = [](WorkerCalls& workers) {
    EXPECT_THROW(workers.call(2, {1}), EngineError);
    EXPECT_THROW(workers.call(-1, {1}), EngineError);
    EXPECT_EQ(workers.call(1, {1}).size(), 1U);
  };
  then([&] { wait_for_calls(); });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
}

TEST_F(RunLoopHooksTest, HooksKnowWhetherTheWorkersAreNew) {
  plan.options.run.failure.max_failures = 1;
  cluster.kept = true;
  then([&] {
    cluster.kept = false;
    cluster.kill(1);
  });
  then([&] { wait_for_calls(); });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(hooks.notes, (Notes{"before, kept", "before", "after"}));
}

TEST_F(RunLoopHooksTest, WorkersThatAreKeptAreNotShutDown) {
  plan.group.keep_workers = true;
  then([&] {
    for (const int rank : {0, 1}) cluster.say_of(rank, wire::WorkerFinished{});
  });
  then([&] { cluster.say(wire::AttemptEnded{0}); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(hooks.notes, (Notes{"before"}));
}

}  // namespace
}  // namespace lockstep::driver
