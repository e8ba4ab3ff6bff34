// Agents that die, hang or cannot start workers, as the driver's loop sees them.

#include <stdexcept>

#include "driver/run_control.h"
#include "run_loop_fixture.h"

namespace lockstep::driver {
namespace {

/// A millisecond passes each time the driver waits.
class TickingClock : public Clock {
 public:
  explicit TickingClock(FakeCluster& cluster) : cluster_(cluster) {}
  Instant now() const override { return cluster_.now() + passed_; }
  WallTime wall_now() const override { return cluster_.wall_now(); }
  void wait(std::span<pollfd> fds, std::optional<Instant> until) override {
    ++waits;
    passed_ += 1ms;
    cluster_.wait(fds, until);
  }
  int waits = 0;

 private:
  FakeCluster& cluster_;
  std::chrono::steady_clock::duration passed_{};
};

TEST_F(RunLoopTest, AHeadThatIsLostBeforeAnAttemptStartsIsReplacedAfterAPause) {
  TickingClock clock(cluster);
  plan.options.run.failure.max_failures = 5;
  std::vector<std::pair<Instant, int>> connects;  // when, and after how many waits
  reconnect = [&] {
    const int socket = cluster.connect();
    connects.emplace_back(clock.now(), clock.waits);
    if (connects.size() == 1) cluster.hang_up();
    return socket;
  };
  then([&] { cluster.hang_up(); });
  then([&] { cluster.pass(1s); });
  then([&] { cluster.finish_all(); });
  const Result result = driver::run(plan, {cluster.socket(), 0, reconnect}, clock).result;
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.failures.size(), 2U);
  ASSERT_EQ(connects.size(), 2U);
  EXPECT_LT(connects[1].first - connects[0].first, 5s);
  EXPECT_LT(connects[1].second - connects[0].second, 20) << "the dead socket is readable, but nobody waits for it";
}

TEST_F(RunLoopTest, AHeadThatIsLostBeforeItIsReadyIsAFailureLikeAnyOther) {
  plan.options.run.failure.max_failures = 1;
  reconnect = [&] { return cluster.connect(); };
  cluster.hang_up();
  then([&] { cluster.pass(1s); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::node);
  EXPECT_EQ(result.failures[0].attempt, 0);
  EXPECT_EQ(cluster.attempt, 1);
}

TEST_F(RunLoopTest, AHeadThatIsLostBeforeItIsReadyIsTheEndIfThereIsNoOther) {
  plan.options.run.failure.max_failures = 5;
  cluster.hang_up();
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  EXPECT_EQ(result.failures.size(), 1U);
}

TEST_F(RunLoopTest, AnAgentThatHangsDoesNotKeepAnInterruptedRun) {
  sys::SignalWatch signals;
  plan.wiring.signals = &signals;
  then([&] {
    cluster.lost.insert(0);
    std::raise(SIGINT);
  });
  const Result result = run();
  EXPECT_EQ(result.state, "interrupted");
  EXPECT_FALSE(outcome.agent_usable);
}

TEST_F(RunLoopTest, AnAgentThatHangsDoesNotKeepAStoppedRun) {
  RunControl control;
  plan.wiring.control = &control;
  then([&] {
    cluster.lost.insert(0);
    control.request_stop(false);
  });
  EXPECT_EQ(run().state, "stopped");
  EXPECT_FALSE(outcome.agent_usable);
}

TEST_F(RunLoopTest, AnAgentThatHangsIsReplaced) {
  plan.options.run.failure.max_failures = 1;
  reconnect = [&] {
    cluster.lost.clear();
    return cluster.connect();
  };
  then([&] {
    cluster.lost.insert(0);
    cluster.say(wire::WorkerExited{0, 1, 1, 0, false, false});
  });
  then([&] { cluster.pass(2s); });   // rank 0 does not settle
  then([&] { cluster.pass(31s); });  // nor is it killed
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 2U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::exit);
  EXPECT_EQ(result.failures[1].kind, FailureKind::node);
  EXPECT_TRUE(outcome.agent_usable);
}

/// A service that cannot begin an attempt.
struct BrokenService : Service {
  std::string name() const override { return "broken"; }
  void check(int) const override {}
  void begin_attempt(int, int, const std::string&) override { throw std::runtime_error("no room"); }
  Value begin_of(int) const override { return Value::object(); }
  std::optional<std::string> lose(int, Instant) override { return std::nullopt; }
  int fd() const override { return -1; }
  std::optional<Instant> deadline() const override { return std::nullopt; }
  std::vector<Event> serve(Instant) override { return {}; }
};

TEST_F(RunLoopTest, AStartThatThrowsAnythingFailsTheRun) {
  plan.options.run.failure.max_failures = -1;
  plan.backend.service = std::make_shared<BrokenService>();
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::internal);
  EXPECT_NE(result.error.find("no room"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::driver
