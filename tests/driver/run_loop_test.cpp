#include "driver/run_loop.h"

#include <sys/resource.h>

#include "driver/run_control.h"
#include "run_loop_fixture.h"

namespace lockstep::driver {
namespace {

/// Files cannot grow while it lives.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

/// Tells every rank its own number, and where it was told that the driver is.
class Doorman : public Service {
 public:
  std::string name() const override { return "doorman"; }
  void check(int) const override {}
  void begin_attempt(int, int, const std::string& address) override { address_ = address; }
  Value begin_of(int rank) const override { return {{"address", address_}, {"rank", rank}}; }
  std::optional<std::string> lose(int, Instant) override { return std::nullopt; }
  int fd() const override { return -1; }
  std::optional<Instant> deadline() const override { return std::nullopt; }
  std::vector<Event> serve(Instant) override { return {}; }

 private:
  std::string address_;
};

TEST_F(RunLoopTest, StartsReportsAndFinishes) {
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}); });
  then([&] { cluster.report(0, 1, {{"loss", 2.0}}); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.metrics.at("loss"), 2.0);
  EXPECT_EQ(result.metrics.at("training_iteration"), 2);
  EXPECT_EQ(record().at("state"), "finished");
  ASSERT_EQ(cluster.sent<wire::StartAttempt>().size(), 1U);
  const auto workers = cluster.sent<wire::StartAttempt>()[0].workers;
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[1].begin.at("rank"), 1);
  EXPECT_EQ(workers[1].begin.at("world_size"), 2);
}

TEST_F(RunLoopTest, ACheckpointIsCommittedWithTheMetricsOfItsReport) {
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] { cluster.report(0, 1, {{"loss", 1.0}}); });
  then([&] { cluster.write(0, 0, path()); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  ASSERT_TRUE(result.checkpoint.has_value());
  result.checkpoint->verify();
  EXPECT_EQ(result.checkpoint->metadata()->at("metrics").at("loss"), 3.0);
  EXPECT_EQ(result.metrics.at("loss"), 1.0);
}

TEST_F(RunLoopTest, ARankThatAsksForItsOwnCheckpointGetsItWhenItIsCommitted) {
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] { cluster.say_of(0, wire::CheckpointWanted{0}); });
  then([&] {
    EXPECT_TRUE(cluster.sent<wire::CheckpointGiven>().empty());
    cluster.write(0, 0, path());
  });
  then([&] { cluster.finish_all(); });
  run();
  ASSERT_EQ(cluster.sent<wire::CheckpointGiven>().size(), 1U);
  EXPECT_EQ(cluster.sent<wire::CheckpointGiven>()[0].path, (path() / "checkpoint_000000").string());
}

TEST_F(RunLoopTest, AKilledWorkerIsAFailureAndTheNextAttemptResumes) {
  plan.options.run.failure.max_failures = 1;
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] { cluster.write(0, 0, path()); });
  then([&] { cluster.kill(1); });
  then([&] {
    EXPECT_EQ(cluster.attempt, 1);
    EXPECT_EQ(record().at("attempt"), 1) << "saved after the workers were started";
    EXPECT_EQ(record().at("failures").size(), 1U);
    cluster.finish_all();
  });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].rank, 1);
  EXPECT_EQ(result.failures[0].kind, FailureKind::signal);
  EXPECT_EQ(result.failures[0].node, "node0");
  const auto starts = cluster.sent<wire::StartAttempt>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].workers[0].begin.at("checkpoint"), "");
  EXPECT_EQ(starts[1].workers[0].begin.at("checkpoint"), (path() / "checkpoint_000000").string());
}

TEST_F(RunLoopTest, AttemptsMayDifferInSize) {
  plan.options.run.failure.max_failures = 1;
  then([&] {
    place(3);
    cluster.kill(1);
  });
  then([&] {
    EXPECT_EQ(cluster.alive.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) cluster.report(rank, 0, {{"rank", rank}});
  });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  const auto starts = cluster.sent<wire::StartAttempt>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[1].workers.back().begin.at("world_size"), 3);
  EXPECT_TRUE(std::filesystem::exists(path() / "logs" / "rank_2.log"));
}

TEST_F(RunLoopTest, AHangIsNamedWithItsStacks) {
  plan.options.run.hang_timeout = Seconds{5};
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}); });
  then([&] {
    cluster.pass(6s);
    cluster.say_of(0, wire::Heartbeat{1});
    cluster.say_of(1, wire::Heartbeat{0});
  });
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  ASSERT_FALSE(result.failures.empty());
  EXPECT_EQ(result.failures[0].kind, FailureKind::hang);
  EXPECT_EQ(result.failures[0].rank, 1);
  EXPECT_EQ(cluster.sent<wire::DumpStacks>().size(), 1U);
  EXPECT_NE(result.error.find("stacks_attempt_0.txt"), std::string::npos);
  EXPECT_NE(slurp(path() / "logs" / "stacks_attempt_0.txt").find("a stack"), std::string::npos);
}

TEST_F(RunLoopTest, ASilentWorkerIsFoundWhenTimePasses) {
  const Result result = run();
  EXPECT_EQ(result.state, "failed") << "nobody beats its heart";
  EXPECT_EQ(result.failures.front().kind, FailureKind::heartbeat);
}

TEST_F(RunLoopTest, CtrlCEndsTheRunAsInterrupted) {
  sys::SignalWatch signals;
  plan.wiring.signals = &signals;
  then([&] { std::raise(SIGINT); });
  const Result result = run();
  EXPECT_EQ(result.state, "interrupted");
  EXPECT_EQ(outcome.signal, SIGINT);
  ASSERT_EQ(cluster.sent<wire::StopAttempt>().size(), 1U);
  EXPECT_TRUE(cluster.sent<wire::StopAttempt>()[0].interrupt);
}

TEST_F(RunLoopTest, AStoppedRunKeepsWhatWasReported) {
  RunControl control;
  plan.wiring.control = &control;
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] {
    cluster.write(0, 0, path());
    control.request_stop(true);
  });
  const Result result = run();
  EXPECT_EQ(result.state, "stopped");
  EXPECT_TRUE(result.error.empty());
  EXPECT_TRUE(result.failures.empty());
  EXPECT_TRUE(result.checkpoint.has_value());
  EXPECT_EQ(cluster.sent<wire::Settle>().size(), 1U);
  EXPECT_EQ(record().at("state"), "stopped");
}

TEST_F(RunLoopTest, AStopBeforeTheStartStartsNothing) {
  RunControl control;
  plan.wiring.control = &control;
  control.request_stop(false);
  EXPECT_EQ(run().state, "stopped");
  EXPECT_TRUE(cluster.sent<wire::StartAttempt>().empty());
}

TEST_F(RunLoopTest, AFullDiskIsAFailureAndNobodyIsToldOfACommit) {
  plan.options.run.failure.max_failures = -1;
  std::optional<FullDisk> full;
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] { cluster.say_of(0, wire::CheckpointWanted{0}); });
  then([&] {
    cluster.write(0, 0, path());
    full.emplace();
  });
  then([&] {
    full.reset();
    cluster.pass(2s);
  });
  then([&] {
    EXPECT_GE(cluster.attempt, 1);
    cluster.finish_all();
  });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_FALSE(result.failures.empty());
  EXPECT_EQ(result.failures[0].kind, FailureKind::storage);
  EXPECT_FALSE(result.checkpoint.has_value());
  for (const auto& given : cluster.sent<wire::CheckpointGiven>()) EXPECT_TRUE(given.path.empty());
  EXPECT_FALSE(std::filesystem::exists(path() / "checkpoint_000000"));
}

TEST_F(RunLoopTest, LateMessagesOfADeadAttemptAreRefused) {
  plan.options.run.failure.max_failures = 1;
  then([&] { cluster.kill(1); });
  then([&] {
    ASSERT_EQ(cluster.attempt, 1);
    wire::Report report;
    report.metrics = wire::encode_value({{"loss", -1.0}});
    cluster.say_of(0, wire::Reports{{report}}, 0);
    cluster.say_of(0, wire::WorkerFinished{}, 0);
    cluster.say(wire::WorkerExited{0, 0, 1, 0, false, false});
    cluster.say(wire::AttemptEnded{0});
  });
  then([&] { cluster.report(0, 0, {{"loss", 1.0}}); });
  then([&] { cluster.finish_all(); });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.metrics.at("loss"), 1.0);
  EXPECT_EQ(result.metrics.at("training_iteration"), 1);
}

TEST_F(RunLoopTest, ALostHeadEndsTheRun) {
  plan.options.run.failure.max_failures = 5;
  then([&] { cluster.hang_up(); });
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  EXPECT_EQ(result.failures.front().kind, FailureKind::node);
  EXPECT_FALSE(outcome.agent_usable);
}

TEST_F(RunLoopTest, ALostHeadIsAFailureLikeAnyOtherWhenThereIsAnother) {
  plan.options.run.failure.max_failures = 1;
  reconnect = [&] { return cluster.connect(); };
  then([&] { cluster.hang_up(); });
  then([&] {
    EXPECT_EQ(cluster.attempt, 1);
    cluster.finish_all();
  });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::node);
  EXPECT_TRUE(outcome.agent_usable);
}

TEST_F(RunLoopTest, WhenThereIsNoOtherAgentTheRunHasFailed) {
  plan.options.run.failure.max_failures = -1;
  reconnect = []() -> int { throw EngineError("no agent"); };
  then([&] { cluster.hang_up(); });
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  EXPECT_NE(result.error.find("no agent"), std::string::npos);
}

TEST_F(RunLoopTest, TwoNodesStartTheirRanksAndEndTogether) {
  place_on({0, 0, 1});
  placement.ranks[2].node_rank = 1;
  then([&] {
    cluster.finish(2);
    cluster.finish(0);
  });
  then([&] { cluster.finish(1); });
  EXPECT_EQ(run().state, "finished");
  const auto starts = cluster.sent<wire::StartAttempt>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].workers.size(), 2U);
  ASSERT_EQ(starts[1].workers.size(), 1U);
  EXPECT_EQ(starts[1].workers[0].rank, 2);
  EXPECT_EQ(starts[1].workers[0].begin.at("node_rank"), 1);
  EXPECT_EQ(starts[1].workers[0].begin.at("world_size"), 3);
  EXPECT_EQ(cluster.told, (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(RunLoopTest, WorkersAreToldTheAddressesOfTheirAttempt) {
  using Peers = std::vector<wire::PeerNode>;
  plan.options.run.failure.max_failures = 1;
  place_on({0, 0, 1, 2});
  then([&] {
    place_on({0, 2});
    cluster.lose(1, "no frame for 30 s");
  });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  std::map<int, std::vector<Peers>> told;
  for (const auto& start : cluster.sent<wire::StartAttempt>())
    for (const auto& worker : start.workers)
      told[start.attempt].push_back(wire::from_value<wire::Begin>(worker.begin).peers);
  const Peers first{{"10.0.0.1", 2}, {"10.0.0.2", 1}, {"10.0.0.3", 1}}, second{{"10.0.0.1", 1}, {"10.0.0.3", 1}};
  EXPECT_EQ(told[0], (std::vector<Peers>{first, first, first, first}));
  EXPECT_EQ(told[1], (std::vector<Peers>{second, second}));
}

TEST_F(RunLoopTest, AServiceGivesEachRankItsOwn) {
  plan.backend.service = std::make_shared<Doorman>();
  place_on({1, 2});
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
  const auto starts = cluster.sent<wire::StartAttempt>();
  ASSERT_EQ(starts.size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    const auto begin = wire::from_value<wire::Begin>(starts[static_cast<std::size_t>(rank)].workers.at(0).begin);
    const Value given = {{"address", "10.0.0.1"}, {"rank", rank}};
    EXPECT_EQ(begin.services, (std::map<std::string, Value>{{"doorman", given}}));
  }
}

TEST_F(RunLoopTest, ALostNodeIsRetriedOnThoseThatAreLeft) {
  plan.options.run.failure.max_failures = 1;
  place_on({0, 1, 2});
  then([&] { cluster.report(0, 0, {{"loss", 3.0}}, true); });
  then([&] { cluster.write(0, 0, path()); });
  then([&] {
    place_on({0, 1});
    cluster.lose(2, "no frame for 30 s");
  });
  then([&] {
    EXPECT_EQ(cluster.attempt, 1);
    EXPECT_EQ(cluster.alive, (std::set{0, 1}));
    cluster.finish_all();
  });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::node);
  EXPECT_EQ(result.failures[0].message, "no frame for 30 s");
  EXPECT_EQ(cluster.told, (std::map<int, int>{{0, 2}, {1, 2}, {2, 1}}));
  EXPECT_TRUE(result.checkpoint.has_value());
  EXPECT_TRUE(outcome.agent_usable);
}

TEST_F(RunLoopTest, AnAgentOfAnotherVersionIsRefused) {
  cluster.version = wire::kVersion + 1;
  try {
    run();
    FAIL();
  } catch (const EngineError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("version " + std::to_string(wire::kVersion + 1)), std::string::npos) << text;
    EXPECT_NE(text.find("version " + std::to_string(wire::kVersion)), std::string::npos) << text;
  }
}

TEST_F(RunLoopTest, AnAttemptWaitsForNodes) {
  int asked = 0;
  plan.wiring.place = [&]() -> std::optional<Placement> {
    if (++asked < 4) return std::nullopt;
    then([this] { cluster.finish_all(); });
    return placement;
  };
  const Result result = run();
  EXPECT_EQ(result.state, "finished") << result.error;
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(cluster.sent<wire::StartAttempt>().size(), 1U);
}

TEST_F(RunLoopTest, AnAttemptThatDoesNotFitFailsTheRun) {
  plan.options.run.failure.max_failures = -1;
  plan.wiring.place = []() -> Placement { throw ConfigError("too many workers"); };
  const Result result = run();
  EXPECT_EQ(result.state, "failed");
  EXPECT_NE(result.error.find("too many workers"), std::string::npos);
  EXPECT_TRUE(cluster.sent<wire::StartAttempt>().empty());
}

}  // namespace
}  // namespace lockstep::driver
