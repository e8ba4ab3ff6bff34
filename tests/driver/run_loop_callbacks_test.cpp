// Callbacks that raise, are interrupted, or serve several runs.

#include <lockstep/callback.h>

#include <functional>
#include <stdexcept>

#include "driver/recorder.h"
#include "run_loop_fixture.h"

namespace lockstep::driver {
namespace {

/// Calls functions in place of hooks.
struct TestCallback : Callback {
  std::string name() const override { return "TestCallback"; }
  void on_start(const RunInfo&) override {
    if (start) start();
  }
  void on_result(const Value& metrics) override {
    if (result) result(metrics);
  }
  void on_end(const Result&) override {
    if (end) end();
  }
  std::function<void()> start, end;
  std::function<void(const Value&)> result;
};

class CallbacksTest : public RunLoopTest {
 protected:
  CallbacksTest() { plan.options.run.callbacks.push_back(&callback); }
  TestCallback callback;
};

TEST_F(CallbacksTest, ACheckpointKeepsItsMetricsWhenACallbackRaises) {
  callback.result = [](const Value&) { throw std::runtime_error("boom"); };
  then([&] {
    cluster.report(0, 0, {{"loss", 3.0}}, true);
    cluster.write(0, 0, path());
  });
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  ASSERT_TRUE(result.checkpoint.has_value());
  EXPECT_EQ(result.checkpoint->metadata()->at("metrics").value("loss", 0.0), 3.0);
}

TEST_F(CallbacksTest, OneThatIsInterruptedInterruptsTheRun) {
  callback.result = [](const Value&) { throw InterruptError(); };
  then([&] {
    cluster.report(0, 0, {{"loss", 3.0}}, true);
    cluster.write(0, 0, path());
  });
  const Result result = run();
  EXPECT_EQ(result.state, "interrupted");
  EXPECT_TRUE(result.failures.empty());
  ASSERT_TRUE(result.checkpoint.has_value());
  EXPECT_EQ(result.checkpoint->metadata()->at("metrics").value("loss", 0.0), 3.0);
  EXPECT_TRUE(cluster.sent<wire::StopAttempt>().at(0).interrupt) << "the functions may clean up";
}

TEST_F(CallbacksTest, OneThatIsInterruptedAtTheStartInterruptsTheRun) {
  callback.start = [] { throw InterruptError(); };
  EXPECT_EQ(run().state, "interrupted");
  EXPECT_TRUE(cluster.sent<wire::StartAttempt>().empty());
}

TEST_F(CallbacksTest, TheSignalThatInterruptedTheCallbackDoesNotKill) {
  sys::SignalWatch signals;
  plan.wiring.signals = &signals;
  callback.result = [](const Value&) {
    std::raise(SIGINT);
    throw InterruptError();
  };
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}); });
  EXPECT_EQ(run().state, "interrupted");
  ASSERT_EQ(cluster.sent<wire::StopAttempt>().size(), 1U);
  EXPECT_TRUE(cluster.sent<wire::StopAttempt>()[0].interrupt);
}

TEST_F(CallbacksTest, AnInterruptedRunStaysOneWhateverItsCallbacksRaise) {
  sys::SignalWatch signals;
  plan.wiring.signals = &signals;
  callback.result = [](const Value&) { throw std::runtime_error("interrupted as well"); };
  callback.end = [] { throw std::runtime_error("boom"); };
  then([&] {
    std::raise(SIGINT);
    cluster.report(0, 0, {{"loss", 3.0}});  // read after the signal
  });
  const Result result = run();
  EXPECT_EQ(result.state, "interrupted");
  EXPECT_EQ(record().at("state"), "interrupted");
  EXPECT_TRUE(result.error.empty());
  EXPECT_EQ(outcome.signal, SIGINT);
}

TEST_F(CallbacksTest, AnInterruptInOnEndDoesNotChangeTheOutcome) {
  callback.end = [] { throw InterruptError(); };
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(record().at("state"), "finished");
}

TEST_F(CallbacksTest, AStopRequestBelongsToTheRunWhoseHookMakesIt) {
  FakeCluster other;
  RunPlan inner = plan;
  inner.options.run.name = "inner";
  callback.result = [&](const Value& metrics) {
    if (metrics.at("loss") != 3.0) return;
    callback.request_stop();
    other.script.push_back([&] { other.report(0, 0, {{"loss", 1.0}}); });
    other.script.push_back([&] { other.finish_all(); });
    EXPECT_EQ(driver::run(inner, {other.socket(), 0, {}}, other).result.state, "finished");
  };
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}); });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(cluster.sent<wire::HoldReports>().size(), 2U) << "each rank is asked to end";
  EXPECT_TRUE(other.sent<wire::HoldReports>().empty());
}

}  // namespace
}  // namespace lockstep::driver
