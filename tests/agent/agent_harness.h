#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sys/process.h"
#include "sys/sockets.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::agent {

/// What a test worker obeys, one after the other (test_worker.cpp).
using Commands = std::vector<Value>;
inline Value cmd(const char* verb, Value argument = nullptr) { return Value::array({verb, std::move(argument)}); }

/// A driver's side of one run. Every wait has a deadline, after which the test fails.
class TestRun {
 public:
  static constexpr auto kPatience = 20s;

  TestRun() = default;
  TestRun(int control, int id) { connect(control, id); }

  /// Makes a connection and has the agent take it.
  void connect(int control, int id) {
    auto [ours, theirs] = sys::socket_pair();
    const std::string word = "run";
    const std::array fds{theirs.get()};
    sys::send_with_fds(control, {reinterpret_cast<const std::uint8_t*>(word.data()), word.size()}, fds);
    channel_ = wire::Channel(std::move(ours));
    id_ = id;
  }
  void disconnect() { channel_ = wire::Channel(sys::Descriptor()); }

  template <class M>
  void send(const M& message) {
    channel_.send(wire::encode({id_, node_}, message));
  }

  /// The next message that is an M; others before it are kept in seen_.
  template <class M>
  M expect() {
    while (auto frame = channel_.receive(now() + kPatience)) {
      auto [envelope, message] = wire::decode_addressed<wire::AgentToDriver>(*frame);
      EXPECT_EQ(envelope, (wire::Envelope{id_, node_}));
      note(message);
      seen_.push_back(message);
      if (auto* found = std::get_if<M>(&message)) return *found;
    }
    throw std::runtime_error(std::string("no ") + M::kName + " came");
  }

  /// A fork server of test workers.
  static wire::Configure test_workers() {
    wire::Configure configure;
    configure.program = {LOCKSTEP_TEST_WORKER_PATH};
    configure.env = {{"PATH", "/usr/bin:/bin"}, {"A_VARIABLE", "its value"}};
    if (const char* options = std::getenv("ASAN_OPTIONS")) configure.env["ASAN_OPTIONS"] = options;
    if (const char* options = std::getenv("TSAN_OPTIONS")) configure.env["TSAN_OPTIONS"] = options;
    configure.cwd = "/usr";
    return configure;
  }

  void configure(const wire::Configure& configure = test_workers()) {
    send(configure);
    expect<wire::AgentReady>();
  }

  /// Starts an attempt whose rank i obeys commands[i].
  void start(int attempt, const std::vector<Commands>& commands, Bytes payload = {}, bool keep = false) {
    wire::StartAttempt start;
    start.attempt = attempt;
    start.payload = std::move(payload);
    for (std::size_t i = 0; i < commands.size(); ++i) {
      wire::Begin begin;
      begin.env["OF_THIS_RANK"] = std::to_string(start.workers.size());
      begin.attempt = attempt;
      begin.rank = static_cast<int>(i);
      begin.config = commands[i];
      begin.keep = keep;
      Value message = wire::to_value(begin);
      message["type"] = wire::Begin::kName;
      start.workers.push_back({begin.rank, std::move(message)});
    }
    log_.assign(commands.size(), "");
    pids_.assign(commands.size(), 0);
    exits_.assign(commands.size(), {});
    from_worker_.assign(commands.size(), {});
    send(start);
  }

  /// One attempt of one rank, to its end.
  wire::WorkerExited run(const Commands& commands) {
    start(0, {commands});
    expect<wire::AttemptEnded>();
    return exits_.at(0);
  }

  /// Waits until rank's output holds `text`, and its pid is known: output may come before WorkerStarted.
  void wait_for_log(std::size_t rank, const std::string& text) {
    while (log_.at(rank).find(text) == std::string::npos) expect<wire::LogText>();
    wait_for_pid(rank);
  }
  void wait_for_pid(std::size_t rank) {
    while (pids_.at(rank) == 0) expect<wire::WorkerStarted>();
  }

  /// The pid that a child command of rank printed.
  int child_pid(std::size_t rank) {
    while (log_.at(rank).find("child ") == std::string::npos || !log_.at(rank).ends_with('\n')) expect<wire::LogText>();
    wait_for_pid(rank);
    return std::stoi(log_.at(rank).substr(log_.at(rank).find("child ") + 6));
  }

  wire::Channel channel_{sys::Descriptor()};
  std::vector<wire::AgentToDriver> seen_;
  // By rank, of the current attempt.
  std::vector<std::string> log_;
  std::vector<int> pids_;
  std::vector<wire::WorkerExited> exits_;
  std::vector<std::vector<Bytes>> from_worker_;

  int node_ = 0;  ///< with whose agent it speaks

 private:
  void note(const wire::AgentToDriver& message) {
    if (const auto* log = std::get_if<wire::LogText>(&message))
      log_.at(static_cast<std::size_t>(log->rank)) += log->text;
    if (const auto* started = std::get_if<wire::WorkerStarted>(&message))
      pids_.at(static_cast<std::size_t>(started->rank)) = started->pid;
    if (const auto* exited = std::get_if<wire::WorkerExited>(&message))
      exits_.at(static_cast<std::size_t>(exited->rank)) = *exited;
    if (const auto* from = std::get_if<wire::FromWorker>(&message))
      from_worker_.at(static_cast<std::size_t>(from->rank)).push_back(from->message);
  }

  int id_ = 0;
};

/// The driver's role against a real agent process: a first run, and the control connection for more.
class AgentHarness : public testing::Test, public TestRun {
 protected:
  void SetUp() override {
    start_agent();
    connect(control_.get(), 1);
  }

  void TearDown() override {
    disconnect();
    control_.reset();
    if (agent_.pid == 0) return;
    expect_end(agent_.pidfd.get(), 5s, "the agent");
    sys::take_exit(agent_.pidfd.get(), true);
  }

  void start_agent() {
    auto [ours, theirs] = sys::packet_pair();
    sys::SpawnOptions options;
    options.argv = {LOCKSTEP_AGENT_PATH, "--fd", "3", "--parent", std::to_string(::getpid())};
    options.fds = {{theirs.get(), 3}};
    options.own_session = true;
    agent_ = sys::spawn(options);
    control_ = std::move(ours);
  }

  static void expect_end(int pidfd, std::chrono::milliseconds limit, const std::string& who) {
    pollfd item{pidfd, POLLIN, 0};
    EXPECT_EQ(::poll(&item, 1, static_cast<int>(limit.count())), 1) << who << " still lives";
  }

  /// Waits for the end of a process that is not our child.
  static void expect_gone(int pid, std::chrono::milliseconds limit) {
    const auto pidfd = sys::open_pidfd(pid);
    if (pidfd) expect_end(pidfd.get(), limit, "process " + std::to_string(pid));
  }

  static bool lives(int pid) {
    const auto status = sys::process_status(pid);
    return status && status->state != 'Z';
  }

  sys::Process agent_;
  sys::Descriptor control_;
};

}  // namespace lockstep::agent
