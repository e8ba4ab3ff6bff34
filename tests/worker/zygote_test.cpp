#include "worker/zygote.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "sys/agent_mark.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep::worker {
namespace {

/// A zygote in a process of its own whose agent is this test. A worker prints what it read from its socket and ends
/// with code 7; "wait" makes it wait.
class ZygoteTest : public testing::Test {
 protected:
  void begin(bool with_thread = false) {
    auto [mine, theirs] = sys::packet_pair();
    agent = std::move(mine);
    zygote = ::fork();
    if (zygote == 0) {
      agent.reset();
      std::atomic<bool> runs = false;
      ::setsid();  // as below an agent
      if (with_thread)
        std::thread([&] {
          for (runs = true;;) ::pause();
        }).detach();
      while (with_thread && !runs) std::this_thread::yield();
      const Birth birth = serve_forks(theirs.release(), {"worker_test", "--gtest_filter=NoSuchTest"});
      std::array<char, 16> text{};
      const auto size = ::read(birth.socket, text.data(), text.size());
      (void)!::write(STDOUT_FILENO, text.data(), static_cast<std::size_t>(size));
      if (std::string_view(text.data()) == "wait")
        for (;;) ::pause();
      ::_exit(7);
    }
    EXPECT_EQ(packet(), "ready");
  }

  void TearDown() override {
    agent.reset();
    if (zygote > 0) ::waitpid(zygote, nullptr, 0);
  }

  std::string packet() {
    pollfd item{agent.get(), POLLIN, 0};
    if (::poll(&item, 1, 10'000) != 1) return "nothing came";
    auto [bytes, fds] = sys::receive_with_fds(agent.get());
    if (!fds.empty()) pidfd = std::move(fds[0]);
    return {bytes.begin(), bytes.end()};
  }

  /// Asks for a worker; its pid.
  int fork_one(int rank, std::string_view message) {
    auto [socket, its_socket] = sys::socket_pair();
    auto [log, its_log] = sys::pipe_pair();
    auto [stacks, its_stacks] = sys::pipe_pair();
    const auto payload = sys::sealed_memory("payload", {});
    const std::string text = "fork " + std::to_string(rank);
    const std::array fds{its_socket.get(), payload.get(), its_log.get(), its_stacks.get()};
    sys::send_with_fds(agent.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
    (void)!::write(socket.get(), message.data(), message.size());
    output = std::move(log);
    sockets.push_back(std::move(socket));
    std::istringstream words(packet());
    std::string verb;
    int its_rank = -1, pid = 0;
    words >> verb >> its_rank >> pid;
    EXPECT_EQ(verb, "started");
    EXPECT_EQ(its_rank, rank);
    return pid;
  }

  void wait_until_it_runs() {
    std::array<char, 4> text{};
    EXPECT_EQ(::read(output.get(), text.data(), 4), 4);
  }

  std::string printed() {
    std::string all;
    std::array<char, 256> text{};
    for (ssize_t size; (size = ::read(output.get(), text.data(), text.size())) > 0;) all.append(text.data(), size);
    return all;
  }

  sys::Descriptor agent, output, pidfd;
  std::vector<sys::Descriptor> sockets;
  pid_t zygote = 0;
};

TEST_F(ZygoteTest, ForksWorkersAndTellsHowTheyEnded) {
  begin();
  for (int rank : {0, 3}) {
    const int pid = fork_one(rank, "hello");
    EXPECT_TRUE(pidfd);
    EXPECT_EQ(printed(), "hello");
    EXPECT_EQ(packet(), "exited " + std::to_string(pid) + " 7 0");
  }
}

TEST_F(ZygoteTest, TellsOfSignals) {
  begin();
  const int pid = fork_one(0, "wait");
  sys::send_signal(pidfd.get(), SIGKILL);
  EXPECT_EQ(packet(), "exited " + std::to_string(pid) + " 0 9");
}

TEST_F(ZygoteTest, WorkersLeadASessionOfTheirOwn) {
  begin();
  const int pid = fork_one(0, "wait");
  wait_until_it_runs();
  EXPECT_EQ(::getsid(pid), pid);
}

TEST_F(ZygoteTest, EndsWithItsWorkersWhenTheAgentIsGone) {
  begin();
  const int pid = fork_one(0, "wait");
  wait_until_it_runs();
  agent.reset();
  EXPECT_EQ(printed(), "");  // the end of its output is its end
  ::waitpid(zygote, nullptr, 0);
  zygote = 0;
  pollfd item{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1) << pid;
}

TEST_F(ZygoteTest, KillsDaemonsWhenTheAgentIsGone) {
  const std::string id = std::to_string(::getpid());
  sys::SpawnOptions options;
  options.argv = {"sleep", "1000"};
  options.env = {{sys::kAgentId, id}, {"PATH", "/usr/bin:/bin"}};
  options.own_session = true;
  const sys::Process daemon = sys::spawn(options);
  options.env = {{sys::kAgentId, id + "0"}, {"PATH", "/usr/bin:/bin"}};
  const sys::Process stranger = sys::spawn(options);
  ::setenv(sys::kAgentId, id.c_str(), 1);
  begin();
  ::unsetenv(sys::kAgentId);
  agent.reset();
  ::waitpid(zygote, nullptr, 0);
  zygote = 0;
  pollfd item{daemon.pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
  EXPECT_FALSE(sys::take_exit(stranger.pidfd.get(), false));
  for (const sys::Process* each : {&daemon, &stranger}) {
    sys::send_signal(each->pidfd.get(), SIGKILL);
    sys::take_exit(each->pidfd.get(), true);
  }
}

TEST_F(ZygoteTest, WithThreadsWorkersExecuteTheProgram) {
  begin(true);
  const int pid = fork_one(0, "hello");
  EXPECT_NE(printed().find("Running 0 tests"), std::string::npos);
  EXPECT_EQ(packet(), "exited " + std::to_string(pid) + " 0 0");
}

TEST_F(ZygoteTest, RefusesWhatItDoesNotUnderstand) {
  begin();
  const std::string text = "fork 5";
  sys::send_with_fds(agent.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, {});
  EXPECT_TRUE(packet().starts_with("refused 5 "));
}

}  // namespace
}  // namespace lockstep::worker
