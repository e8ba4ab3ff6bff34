// What becomes of the agent itself: its end, and its memory.

#include <sys/wait.h>

#include <fstream>

#include "agent_harness.h"

namespace lockstep::agent {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsItsOwn = false;  // sanitizers keep freed memory
#else
constexpr bool kMemoryIsItsOwn = true;
#endif

class AgentProcess : public AgentHarness {
 protected:
  /// An attempt with children near and far; their pids.
  std::vector<int> start_family() {
    configure();
    start(1, {{cmd("child"), cmd("ignore", SIGTERM), cmd("wait")},
              {cmd("far_child"), cmd("wait")},
              {cmd("print", "child 0\n"), cmd("wait")}});
    std::vector<int> family;
    for (std::size_t i = 0; i < 2; ++i) family.push_back(child_pid(i));
    child_pid(2);
    family.insert(family.end(), pids_.begin(), pids_.end());
    return family;
  }

  void expect_all_gone(const std::vector<int>& family) {
    expect_end(agent_.pidfd.get(), 1s, "the agent");
    EXPECT_EQ(sys::take_exit(agent_.pidfd.get(), true), (sys::ExitStatus{0, 0}));
    agent_ = {};
    for (const int pid : family) EXPECT_EQ(sys::process_status(pid), std::nullopt);
  }

  long resident_kilobytes() const {
    std::ifstream status("/proc/" + std::to_string(agent_.pid) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
    return 0;
  }
};

TEST_F(AgentProcess, TellsWhoItIs) {
  send(test_workers());
  const auto ready = expect<wire::AgentReady>();
  EXPECT_EQ(ready.pid, agent_.pid);
  EXPECT_EQ(ready.version, wire::kVersion);
  EXPECT_FALSE(ready.name.empty());
  std::ifstream comm("/proc/" + std::to_string(agent_.pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  EXPECT_EQ(name, "lockstep-agent");
}

TEST_F(AgentProcess, EndsWithEverythingWhenTheControlConnectionEnds) {
  const auto family = start_family();
  control_.reset();
  expect_all_gone(family);
}

TEST_F(AgentProcess, EndsWithEverythingOnSigterm) {
  const auto family = start_family();
  sys::send_signal(agent_.pidfd.get(), SIGTERM);
  expect_all_gone(family);
}

TEST_F(AgentProcess, WorkersEndEvenWhenTheAgentIsKilled) {
  configure();
  start(1, {{cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  sys::send_signal(agent_.pidfd.get(), SIGKILL);
  expect_gone(pids_[0], 1s);
}

// A process that the driver forked holds a copy of the driver's socket: there is no end of stream when the driver dies.
TEST_F(AgentProcess, EndsWithItsParentWhoeverHoldsTheSocket) {
  auto [ours, theirs] = sys::packet_pair();
  auto [read_end, write_end] = sys::pipe_pair();
  const pid_t driver = ::fork();
  if (driver == 0) {
    sys::SpawnOptions options;
    options.argv = {LOCKSTEP_AGENT_PATH, "--fd", "3", "--parent", std::to_string(::getpid())};
    options.fds = {{theirs.get(), 3}, {write_end.get(), 1}};
    sys::spawn(options);
    ::_exit(0);
  }
  write_end.reset();
  // The agent holds the pipe as long as it lives; this process holds `ours`, the driver's end.
  pollfd item{read_end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
  ::waitpid(driver, nullptr, 0);
}

// A driver that does not read: workers are held back, and nothing of what they say is lost when it reads again.
TEST_F(AgentProcess, ASlowDriverHoldsWorkersBack) {
  configure();
  const long before = resident_kilobytes();
  constexpr int kMegabytes = kMemoryIsItsOwn ? 64 : 16;
  start(1, {{cmd("spam", kMegabytes)}, {cmd("flood", kMegabytes)}});
  long most = 0;
  // The agent sleeps once it is full; until then its memory may grow.
  for (int still = 0; still < 20;) {
    std::this_thread::sleep_for(10ms);
    const auto status = sys::process_status(agent_.pid);
    still = status->state == 'S' ? still + 1 : 0;
    most = std::max(most, resident_kilobytes());
  }
  if (kMemoryIsItsOwn) {
    EXPECT_LT(most - before, 32 << 10) << "kB grown";
  }
  expect<wire::AttemptEnded>();
  EXPECT_EQ(log_[0].size(), std::size_t{kMegabytes} << 20);
  EXPECT_EQ(from_worker_[1].size(), std::size_t{kMegabytes} * 16);
  if (kMemoryIsItsOwn) {
    EXPECT_LT(resident_kilobytes() - before, 32 << 10) << "kB grown";
  }
}

TEST_F(AgentProcess, RefusesToRunByHand) {
  sys::SpawnOptions options;
  options.argv = {"/bin/sh", "-c", std::string(LOCKSTEP_AGENT_PATH) + " 2>/dev/null"};
  EXPECT_EQ(sys::take_exit(sys::spawn(options).pidfd.get(), true), (sys::ExitStatus{2, 0}));
}

}  // namespace
}  // namespace lockstep::agent
