// Many runs on one agent: each has a connection of its own, and nothing else in common but the fork servers.

#include <gmock/gmock.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>

#include "agent/fork_servers.h"
#include "agent_harness.h"
#include "sys/node.h"

namespace lockstep::agent {
namespace {

class Runs : public AgentHarness {
 protected:
  void SetUp() override {
    AgentHarness::SetUp();
    configure();
    other_.connect(control_.get(), 2);
    other_.configure();
  }

  /// Both runs have two ranks that wait; rank 1 of this one has a child in a session of its own.
  void start_both() {
    start(0, {{cmd("print", "up"), cmd("wait")}, {cmd("far_child"), cmd("wait")}});
    other_.start(0, {{cmd("far_child"), cmd("echo", 1)}, {cmd("print", "up"), cmd("echo", 1)}});
    wait_for_log(0, "up");
    child_ = child_pid(1);
    others_child_ = other_.child_pid(0);
    other_.wait_for_log(1, "up");
  }

  /// The other run was not touched: its processes live, and it goes on to its end.
  void expect_the_other_goes_on() {
    for (const int pid : other_.pids_) EXPECT_TRUE(lives(pid));
    EXPECT_TRUE(lives(others_child_));
    other_.send(wire::ToWorker{0, -1, {1}});
    EXPECT_EQ(other_.expect<wire::AttemptEnded>().attempt, 0);
    for (const auto& exit : other_.exits_) {
      EXPECT_EQ(exit.signal, 0);
      EXPECT_FALSE(exit.stopped_by_us);
    }
    EXPECT_EQ(sys::process_status(others_child_), std::nullopt) << "it went with its worker";
  }

  /// Sends a packet over the control connection.
  void send_control(const std::string& text, const std::vector<int>& fds) {
    sys::send_with_fds(control_.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
  }

  /// Descriptors that the agent has open.
  std::size_t open_descriptors() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(agent_.pid) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  TestRun other_;
  int child_ = 0, others_child_ = 0;
};

TEST_F(Runs, HaveNumbersAndAttemptsOfTheirOwn) {
  start(7, {{cmd("print", "one"), cmd("echo", 1)}});
  other_.start(7, {{cmd("print", "two"), cmd("echo", 1)}});  // harness checks the envelopes
  wait_for_log(0, "one");
  other_.wait_for_log(0, "two");
  send(wire::ToWorker{7, 0, {1}});
  expect<wire::AttemptEnded>();
  EXPECT_TRUE(lives(other_.pids_[0]));
  EXPECT_TRUE(other_.from_worker_[0].empty());
  other_.send(wire::ToWorker{7, 0, {2}});
  other_.expect<wire::AttemptEnded>();
  EXPECT_EQ(other_.from_worker_[0], (std::vector<Bytes>{{2}}));
  EXPECT_EQ(other_.log_[0], "two");
}

TEST_F(Runs, OneIsStoppedAndTheOtherGoesOn) {
  start_both();
  send(wire::StopAttempt{0, false, 0});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(sys::process_status(child_), std::nullopt);
  expect_the_other_goes_on();
}

TEST_F(Runs, AKilledWorkerIsTheFailureOfItsOwnRun) {
  start_both();
  ::kill(pids_[1], SIGKILL);
  while (exits_[1].signal == 0) expect<wire::WorkerExited>();
  expect_gone(child_, 5s);
  EXPECT_TRUE(lives(pids_[0]));
  expect_the_other_goes_on();
}

TEST_F(Runs, AConnectionThatClosesEndsItsOwnRun) {
  start_both();
  disconnect();
  for (const int pid : {pids_[0], pids_[1], child_}) expect_gone(pid, 5s);
  expect_the_other_goes_on();
}

TEST_F(Runs, NonsenseEndsItsOwnRun) {
  start_both();
  channel_.send(Bytes{1, 2, 3});
  for (const int pid : {pids_[0], pids_[1], child_}) expect_gone(pid, 5s);
  while (channel_.receive(now() + kPatience)) {
  }
  EXPECT_TRUE(channel_.closed());
  expect_the_other_goes_on();
}

TEST_F(Runs, KeptWorkersBelongToTheirConnection) {
  start(0, {{cmd("send", 1)}}, {}, true);
  expect<wire::FromWorker>();
  wait_for_pid(0);
  send(wire::KeepWorkers{0});
  expect<wire::AttemptEnded>();
  other_.send(wire::CountKept{});
  EXPECT_EQ(other_.expect<wire::KeptWorkers>().alive, 0);
  other_.start(1, {{cmd("exit", 3)}});
  other_.expect<wire::AttemptEnded>();
  EXPECT_NE(other_.pids_[0], pids_[0]);
  EXPECT_TRUE(lives(pids_[0]));
  disconnect();
  expect_gone(pids_[0], 5s);
}

// Nobody reads what this run's worker prints: its own worker waits, and no other.
TEST_F(Runs, ASlowDriverHoldsUpNobodyElse) {
  start(0, {{cmd("spam", 32)}});
  for (int round = 0; round < 20; ++round) {
    other_.start(round, {{cmd("print", "here"), cmd("exit", 0)}});
    other_.expect<wire::AttemptEnded>();
    EXPECT_EQ(other_.log_[0], "here");
  }
  expect<wire::AttemptEnded>();
  EXPECT_EQ(log_[0].size(), std::size_t{32} << 20);
}

// The daemons of a live worker are its own, though their parent is gone; nobody sweeps them with those of the dead.
TEST_F(Runs, DaemonsOfLiveWorkersAreLeftAlone) {
  start(0, {{cmd("far_child"), cmd("wait")}});
  const int daemon = child_pid(0);
  EXPECT_EQ(sys::process_status(daemon)->parent, pids_[0]);
  for (int round = 0; round < 5; ++round) {
    other_.start(round, {{cmd("far_child"), cmd("exit", 0)}, {cmd("child"), cmd("signal", SIGKILL)}});
    other_.expect<wire::AttemptEnded>();
    for (std::size_t rank : {0, 1}) EXPECT_EQ(sys::process_status(other_.child_pid(rank)), std::nullopt);
  }
  EXPECT_TRUE(lives(daemon));
}

// A killed process may take long to vanish, when it waits for a device; here a tracer holds it at its exit.
TEST_F(Runs, OrphansOfOneDoNotDelayTheOther) {
  start_both();
  if (::ptrace(PTRACE_SEIZE, child_, nullptr, PTRACE_O_TRACEEXIT) != 0) GTEST_SKIP() << "this user may not trace";
  ::kill(pids_[1], SIGKILL);
  while (exits_[1].signal == 0) expect<wire::WorkerExited>();
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, __WALL), child_);
  ASSERT_TRUE(WIFSTOPPED(status)) << "it was killed and is about to exit";
  // So far apart no end is taken for another's.
  std::this_thread::sleep_for(1100ms);
  expect_the_other_goes_on();
  send(wire::StopAttempt{0, false, 0});
  while (exits_[0].signal == 0) expect<wire::WorkerExited>();
  EXPECT_FALSE(channel_.receive(now() + 200ms)) << "its own run waits for it";
  ::ptrace(PTRACE_DETACH, child_, nullptr, nullptr);
  expect<wire::AttemptEnded>();
  EXPECT_EQ(sys::process_status(child_), std::nullopt);
}

TEST_F(Runs, CrowdsOfOrphansAreKilled) {
  start(0, {{cmd("print", "up"), cmd("wait")}, {cmd("many_children", 100), cmd("exit", 1)}});
  while (exits_[1].code == 0) expect<wire::WorkerExited>();
  const Instant begin = now();
  while (sys::children(agent_.pid).size() > 1 && now() - begin < 10s) std::this_thread::sleep_for(10ms);
  EXPECT_THAT(sys::children(agent_.pid), testing::SizeIs(1))
      << "the attempt goes on, and what the dead rank left does not";
  EXPECT_TRUE(lives(pids_[0]));
}

TEST_F(Runs, ManyAtOnce) {
  constexpr int kRuns = 12;
  std::vector<TestRun> runs;
  for (int i = 0; i < kRuns; ++i) runs.emplace_back(control_.get(), 10 + i);
  for (auto& run : runs) run.send(test_workers());
  for (int i = 0; i < kRuns; ++i)
    runs[static_cast<std::size_t>(i)].start(
        i, {{cmd("far_child"), cmd("exit", i)}, {cmd("print", "run " + std::to_string(i))}});
  for (int i = 0; i < kRuns; ++i) {
    auto& run = runs[static_cast<std::size_t>(i)];
    if (i % 3 == 2) {
      run.disconnect();
      continue;
    }
    EXPECT_EQ(run.expect<wire::AttemptEnded>().attempt, i);
    EXPECT_EQ(run.exits_[0].code, i);
    EXPECT_EQ(run.log_[1], "run " + std::to_string(i));
    EXPECT_EQ(sys::process_status(run.child_pid(0)), std::nullopt);
  }
  // All runs are served by one process. Children of workers that were killed last are reaped in a moment.
  for (const Instant end = now() + 10s; sys::children(agent_.pid).size() > 1 && now() < end;) std::this_thread::yield();
  EXPECT_THAT(sys::children(agent_.pid), testing::SizeIs(1));
}

TEST_F(Runs, HostileControlPacketsAreHarmless) {
  start_both();
  const std::size_t before = open_descriptors();
  auto [a, b] = sys::socket_pair();
  auto [packets, more_packets] = sys::packet_pair();
  const auto file = sys::sealed_memory("not a socket", {});
  send_control("run", {});
  send_control("run", {a.get(), b.get()});
  send_control("run", std::vector<int>(16, a.get()));
  send_control("run", {file.get()});
  send_control("run", {packets.get()});
  send_control("walk", {a.get()});
  send_control(std::string(64 << 10, '\xff'), {});
  send_control(std::string("\0\0", 2), {b.get()});
  // A frame that claims two gigabytes and more, on a connection of its own.
  TestRun liar(control_.get(), 3);
  ASSERT_EQ(::send(liar.channel_.fd(), "\xff\xff\xff\xff", 4, 0), 4);
  EXPECT_FALSE(liar.channel_.receive(now() + kPatience));
  EXPECT_TRUE(liar.channel_.closed());
  TestRun third(control_.get(), 4);
  third.configure();
  EXPECT_EQ(third.run({cmd("exit", 5)}).code, 5);
  third.disconnect();
  a.reset();
  b.reset();
  expect_the_other_goes_on();
  EXPECT_LE(open_descriptors(), before) << "none of theirs is left";
}

TEST_F(Runs, ANodeThatIsNotConnectedIsLost) {
  channel_.send(wire::encode({1, 3}, wire::StopAttempt{0, false, 0}));
  const auto frame = channel_.receive(now() + kPatience);
  ASSERT_TRUE(frame);
  const auto [envelope, message] = wire::decode_addressed<wire::AgentToDriver>(*frame);
  EXPECT_EQ(envelope, (wire::Envelope{1, 3}));
  EXPECT_TRUE(std::holds_alternative<wire::NodeLost>(message));
}

// ---------------------------------------------------------------- fork servers

class WarmForkServers : public AgentHarness {
 protected:
  /// The pid of the fork server of runs with this variable.
  int server_of(const std::string& variable, bool keep_connection = false) {
    TestRun run(control_.get(), ++last_);
    auto configure = TestRun::test_workers();
    configure.env["VARIABLE"] = variable;
    run.configure(configure);
    run.start(0, {{cmd("print_parent")}});
    run.expect<wire::AttemptEnded>();
    const int pid = std::stoi(run.log_[0]);
    if (keep_connection) held_.push_back(std::move(run));
    return pid;
  }

  std::vector<TestRun> held_;
  int last_ = 10;
};

TEST_F(WarmForkServers, AreKeptWhenAnotherIsUsed) {
  const int first = server_of("a"), second = server_of("b");
  EXPECT_NE(first, second);
  EXPECT_EQ(server_of("a"), first);
  EXPECT_EQ(server_of("b"), second);
}

TEST_F(WarmForkServers, TheOneUsedLongestAgoEndsFirst) {
  const sys::Memory memory = sys::memory();
  if (most_idle_servers(memory.available, memory.total) != 4) GTEST_SKIP() << "this machine is short of memory";
  const int a = server_of("a"), b = server_of("b"), c = server_of("c"), d = server_of("d");
  EXPECT_EQ(server_of("a"), a);
  const int e = server_of("e");
  expect_gone(b, 5s);
  for (const int pid : {a, c, d, e}) EXPECT_TRUE(lives(pid)) << pid;
  EXPECT_NE(server_of("b"), b);
  expect_gone(c, 5s);
  EXPECT_EQ(server_of("a"), a);
}

TEST_F(WarmForkServers, ThoseInUseAreNotCounted) {
  const int used = server_of("used", true);
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) server_of(name);
  EXPECT_TRUE(lives(used));
  EXPECT_EQ(server_of("used"), used);
}

TEST_F(WarmForkServers, OneThatNobodyWaitsForAnyMoreEnds) {
  TestRun run(control_.get(), 2);
  auto stuck = TestRun::test_workers();
  stuck.program = {"sleep", "1000"};
  run.send(stuck);
  while (sys::children(agent_.pid).empty()) std::this_thread::yield();
  const int pid = sys::children(agent_.pid).at(0);
  run.disconnect();
  expect_gone(pid, 5s);
}

TEST(ForkServerChoice, IgnoresWhatAShellChanges) {
  const wire::Configure a{{"python"}, {{"PATH", "/bin"}, {"PWD", "/a"}, {"SHLVL", "1"}}, "/a", {}};
  wire::Configure b{{"python"}, {{"PATH", "/bin"}, {"PWD", "/b"}, {"_", "/bin/x"}}, "/b", {}};
  EXPECT_TRUE(same_server(a, b));
  b.env["PATH"] = "/usr/bin";
  EXPECT_FALSE(same_server(a, b));
  b = a;
  b.program.push_back("torch");
  EXPECT_FALSE(same_server(a, b));
}

TEST(ForkServerChoice, FewerAreKeptWhenMemoryIsShort) {
  EXPECT_EQ(most_idle_servers(50, 100), 4u);
  EXPECT_EQ(most_idle_servers(10, 100), 4u);
  EXPECT_EQ(most_idle_servers(9, 100), 1u);
  EXPECT_EQ(most_idle_servers(0, 0), 4u) << "nothing is known";
}

}  // namespace
}  // namespace lockstep::agent
