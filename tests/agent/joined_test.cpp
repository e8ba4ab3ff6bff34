// Agents of other nodes that join the head agent.

#include "agent/joined.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include "cluster_harness.h"

namespace lockstep::agent {
namespace {

namespace head_link = engine::head_link;
using testing::HasSubstr;

using Cluster = ClusterHarness;

TEST_F(Cluster, ANodeJoinsAndSaysWhatItOffers) {
  listen();
  const auto node = join("b");
  EXPECT_EQ(node.node, 1);
  EXPECT_EQ(node.name, "b");
  EXPECT_EQ(node.address, "127.0.0.1");
  EXPECT_EQ(node.head_address, "127.0.0.1");
  EXPECT_EQ(node.resources.at("CPU"), 3) << "--slots";
}

TEST_F(Cluster, NodesHaveTheIndicesOfTheirNames) {
  listen(5s, {"a", "b"});
  EXPECT_EQ(join("b").node, 2);
  EXPECT_EQ(join("a").node, 1);
}

TEST_F(Cluster, WorkersOfANodeAreLikeThoseOfTheHead) {
  listen();
  const auto run = run_on(join("b").node);
  run->start(4, {{cmd("print", "one"), cmd("echo", 1)}, {cmd("print", "two"), cmd("echo", 1)}});
  run->wait_for_log(0, "one");
  run->wait_for_log(1, "two");
  run->send(wire::ToWorker{4, -1, {7}});
  EXPECT_EQ(run->expect<wire::AttemptEnded>().attempt, 4);
  for (std::size_t rank : {0, 1}) {
    EXPECT_EQ(run->from_worker_[rank], (std::vector<Bytes>{{7}}));
    EXPECT_EQ(run->exits_[rank].signal, 0);
  }
}

TEST_F(Cluster, OneRunUsesManyNodes) {
  listen();
  const int b = join("b").node, c = join("c").node;
  TestRun run(control_.get(), ++runs_);
  for (const int node : {0, b, c}) {
    run.node_ = node;
    run.configure();
    run.start(node, {{cmd("print", "here"), cmd("echo", 1)}});
    run.wait_for_log(0, "here");
    run.send(wire::ToWorker{node, 0, {1}});
    EXPECT_EQ(run.expect<wire::AttemptEnded>().attempt, node);
  }
}

TEST_F(Cluster, AConnectionThatClosesEndsItsWorkersOnAllNodes) {
  listen();
  const int b = join("b").node;
  const auto one = run_on(b), other = run_on(b);
  one->start(0, {{cmd("far_child"), cmd("wait")}});
  other->start(0, {{cmd("print", "up"), cmd("echo", 1)}});
  const int child = one->child_pid(0);
  other->wait_for_log(0, "up");
  one->disconnect();
  expect_gone(one->pids_[0], 5s);
  expect_gone(child, 5s);
  EXPECT_TRUE(lives(other->pids_[0]));
  other->send(wire::ToWorker{0, 0, {1}});
  other->expect<wire::AttemptEnded>();
}

TEST_F(Cluster, AConnectionThatClosesIsClosedByTheHeadWhenNothingIsLeftOnTheNodes) {
  listen();
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("wait")}});
  run->wait_for_pid(0);
  ::shutdown(run->channel_.fd(), SHUT_WR);
  while (run->channel_.receive(now() + kPatience)) {
  }
  EXPECT_TRUE(run->channel_.closed());
  EXPECT_FALSE(lives(run->pids_[0]));
}

TEST_F(Cluster, AKilledAgentIsALostNodeAndTheOthersGoOn) {
  listen();
  const int b = join("b").node, c = join("c").node;
  const auto one = run_on(b), other = run_on(c);
  one->start(0, {{cmd("wait")}});
  one->wait_for_pid(0);
  other->start(0, {{cmd("print", "up"), cmd("echo", 1)}});
  other->wait_for_log(0, "up");
  ::kill(joined_["b"].pid, SIGKILL);
  EXPECT_THAT(one->expect<wire::NodeLost>().why, HasSubstr("node b is lost"));
  EXPECT_EQ(notice<head_link::Lost>().node, b);
  expect_gone(one->pids_[0], 5s);
  other->send(wire::ToWorker{0, 0, {1}});
  other->expect<wire::AttemptEnded>();
}

TEST_F(Cluster, ANodeThatIsGoneIsReplacedUnderItsName) {
  listen();
  join("b");
  ::kill(joined_["b"].pid, SIGKILL);
  notice<head_link::Lost>();
  sys::take_exit(joined_["b"].pidfd.get(), true);
  const auto run = run_on(join("b").node);
  run->start(0, {{}});
  run->expect<wire::AttemptEnded>();
}

TEST_F(Cluster, TheEndOfTheHeadEndsEverything) {
  listen();
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("far_child"), cmd("wait")}});
  const int child = run->child_pid(0);
  ::kill(agent_.pid, SIGKILL);
  expect_end(joined_["b"].pidfd.get(), 5s, "the joined agent");
  expect_gone(run->pids_[0], 5s);
  expect_gone(child, 5s);
}

TEST_F(Cluster, TheEndOfTheEngineEndsTheNodesAndNotTheHead) {
  listen();
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("wait")}});
  run->wait_for_pid(0);
  engine_.reset();
  EXPECT_THAT(run->expect<wire::NodeLost>().why, HasSubstr("node b"));
  expect_end(joined_["b"].pidfd.get(), 5s, "the joined agent");
  expect_gone(run->pids_[0], 5s);
  const auto local = run_on(0);
  local->start(0, {{}});
  local->expect<wire::AttemptEnded>();
}

TEST_F(Cluster, AnAgentEndsWithItsStandardInput) {
  listen();
  const auto start = [&](const std::string& name, int port) {
    auto [theirs, ours] = sys::pipe_pair();
    const std::string line = std::string(kSecret) + "\n";
    EXPECT_EQ(::write(ours.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    sys::SpawnOptions options;
    options.argv = {
        LOCKSTEP_AGENT_PATH, "--join", "127.0.0.1:" + std::to_string(port), "--name", name, "--secret-stdin",
        "--until-stdin-ends"};
    options.own_session = true;
    options.fds = {{theirs.get(), 0}};
    joined_[name] = sys::spawn(options);
    return std::move(ours);
  };
  sys::Descriptor input = start("b", port_);
  const auto run = run_on(notice<head_link::Joined>().node);
  run->start(0, {{cmd("wait")}});
  run->wait_for_pid(0);
  (void)!::write(input.get(), "ignored\n", 8);
  pollfd item{joined_["b"].pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 50), 0);
  input.reset();
  expect_end(joined_["b"].pidfd.get(), 5s, "the joined agent");
  expect_gone(run->pids_[0], 5s);

  // It may have no connection yet: nothing listens there.
  input = start("c", 1);
  item.fd = joined_["c"].pidfd.get();
  EXPECT_EQ(::poll(&item, 1, 50), 0) << "it waits for the head";
  input.reset();
  expect_end(joined_["c"].pidfd.get(), 5s, "the agent that waits");
}

TEST_F(Cluster, ALeaseEndsBeforeTheNodeIsLost) {
  listen(2s);
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("wait")}});
  run->wait_for_pid(0);
  const auto worker = sys::open_pidfd(run->pids_[0]);
  ::kill(agent_.pid, SIGSTOP);  // the head is silent, but its connection stays
  const Instant begin = now();
  expect_end(worker.get(), 10s, "the worker");
  EXPECT_LT(Seconds(now() - begin), Seconds(2.0)) << "the head would have given its rank to another node";
  ::kill(agent_.pid, SIGCONT);
  EXPECT_THAT(run->expect<wire::NodeLost>().why, HasSubstr("node b"));
}

TEST_F(Cluster, ASilentNodeIsLost) {
  listen(1s);
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("wait")}});
  run->wait_for_pid(0);
  ::kill(joined_["b"].pid, SIGSTOP);
  EXPECT_THAT(run->expect<wire::NodeLost>().why, HasSubstr("nothing was heard of it for 1 s"));
  ::kill(joined_["b"].pid, SIGCONT);
  expect_gone(run->pids_[0], 5s);
}

TEST_F(Cluster, LargeMessagesDoNotHoldUpSignsOfLife) {
  listen(5s);
  const auto run = run_on(join("b").node);
#ifdef __SANITIZE_THREAD__
  constexpr std::size_t kSize = std::size_t{60} << 20;  // encryption is ten times as slow
#else
  constexpr std::size_t kSize = std::size_t{200} << 20;
#endif
  run->start(0, {{cmd("echo", 1)}});
  run->send(wire::ToWorker{0, 0, Bytes(kSize, 3)});
  run->expect<wire::AttemptEnded>();
  ASSERT_EQ(run->from_worker_[0].size(), 1u);
  EXPECT_EQ(run->from_worker_[0][0].size(), kSize);
}

TEST_F(Cluster, ARunWhoseDriverDoesNotReadHoldsUpNoOther) {
  listen(1s);
  const int b = join("b").node;
  const auto slow = run_on(b), other = run_on(b);
  slow->start(0, {{cmd("flood", 300)}});
  for (int i = 0; i < 5; ++i) {
    other->start(i, {{cmd("echo", 1)}});
    other->send(wire::ToWorker{i, 0, {1}});
    other->expect<wire::AttemptEnded>();
  }
  slow->expect<wire::AttemptEnded>();
  EXPECT_EQ(slow->from_worker_[0].size(), 300u * 16);
}

TEST_F(Cluster, TheEnvironmentIsTheNodesOwnExceptWhatTravels) {
  listen();
  ::setenv("OF_THE_NODE", "its own", 1);
  const int node = join("b").node;
  ::unsetenv("OF_THE_NODE");
  TestRun run(control_.get(), ++runs_);
  run.node_ = node;
  auto configure = TestRun::test_workers();
  configure.env["PATH"] = "/of/the/driver";
  configure.env["TORCH_SHOW_CPP_STACKTRACES"] = "of the driver";
  run.configure(configure);
  run.start(
      0, {{cmd("print_env", "OF_THE_NODE"), cmd("print_env", "TORCH_SHOW_CPP_STACKTRACES"), cmd("print_env", "PATH")}});
  run.expect<wire::AttemptEnded>();
  EXPECT_THAT(run.log_[0], HasSubstr("its own"));
  EXPECT_THAT(run.log_[0], HasSubstr("of the driver"));
  EXPECT_THAT(run.log_[0], testing::Not(HasSubstr("/of/the/driver")));
}

TEST_F(Cluster, ANodeThatDoesNotSeeTheRunDirectoryRefusesTheAttempt) {
  listen();
  const auto run = run_on(join("b").node);
  wire::Begin begin;
  begin.trial_id = "abc123";
  begin.storage = folder_ / "run";
  Value value = wire::to_value(begin);
  value["type"] = wire::Begin::kName;
  run->send(wire::StartAttempt{0, {{0, value}}, {}});
  EXPECT_THAT(run->expect<wire::AgentFailed>().message, HasSubstr("does not see the run directory"));
  std::filesystem::create_directory(folder_ / "run");
  std::ofstream(folder_ / "run" / "run.json") << R"({"trial_id": "abc123"})";
  run->exits_.resize(1);
  run->log_.resize(1);
  run->pids_.resize(1);
  run->send(wire::StartAttempt{1, {{0, value}}, {}});
  run->expect<wire::AttemptEnded>();
}

}  // namespace
}  // namespace lockstep::agent
