#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/connection.h"
#include "engine/fake_engine.h"
#include "engine/local/local_engine.h"
#include "sys/sockets.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool has_ended(int fd, int milliseconds) {
  pollfd item{fd, POLLIN, 0};
  char byte;
  return ::poll(&item, 1, milliseconds) == 1 && ::read(fd, &byte, 1) == 0;
}

/// What every engine owes its caller.
template <class E>
class Engines : public testing::Test {
 protected:
  E engine_;
};

using All = testing::Types<FakeEngine, LocalEngine>;
TYPED_TEST_SUITE(Engines, All);

TYPED_TEST(Engines, ConnectsAndStops) {
  const auto agents = this->engine_.start({});
  ASSERT_EQ(agents.size(), 1u);
  EXPECT_EQ(agents[0].node, 0);
  EXPECT_FALSE(agents[0].name.empty());
  EXPECT_FALSE(agents[0].address.empty());
  EXPECT_GE(agents[0].resources.at("CPU"), 1);
  EXPECT_FALSE(has_ended(agents[0].socket.get(), 50));
  EXPECT_TRUE(this->engine_.lost().empty());
  this->engine_.stop();
  EXPECT_TRUE(has_ended(agents[0].socket.get(), 5000));
  EXPECT_TRUE(this->engine_.lost().empty()) << "it was not lost";
  this->engine_.stop();
}

TYPED_TEST(Engines, StartsAgainAfterStop) {
  const auto first = this->engine_.start({});
  EXPECT_THROW(this->engine_.start({}), InternalError);
  this->engine_.stop();
  const auto second = this->engine_.start({});
  EXPECT_FALSE(has_ended(second[0].socket.get(), 50));
}

TYPED_TEST(Engines, RefusesWhatItCannotServe) { EXPECT_THROW(this->engine_.start({.nodes = 0}), ConfigError); }

TEST(FakeEngine, HasAsManyNodesAsAskedFor) {
  FakeEngine engine;
  engine.gpu_ids = {"0", "1"};
  const auto agents = engine.start({.nodes = 3});
  ASSERT_EQ(agents.size(), 3u);
  for (int node = 0; node < 3; ++node) {
    const AgentHandle& agent = agents[static_cast<std::size_t>(node)];
    EXPECT_EQ(agent.node, node);
    EXPECT_EQ(static_cast<bool>(agent.socket), node == 0) << "others are reached through the head";
    EXPECT_EQ(agent.gpu_ids.size(), 2u);
  }
  EXPECT_NE(agents[1].address, agents[2].address);
}

TEST(FakeEngine, LosesNodes) {
  FakeEngine engine;
  const auto agents = engine.start({.nodes = 3});
  engine.lose(2, "the power went");
  const auto lost = engine.lost();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].node, 2);
  EXPECT_EQ(lost[0].why, "the power went");
  EXPECT_TRUE(engine.lost().empty()) << "each is told once";
  EXPECT_FALSE(has_ended(agents[0].socket.get(), 0));
  engine.lose(0, "and here too");
  EXPECT_TRUE(has_ended(agents[0].socket.get(), 1000));
  EXPECT_EQ(engine.lost().size(), 1u);
}

TEST(Connections, ReachTheAgent) {
  FakeEngine engine;
  const auto agents = engine.start({});
  const Connection first(agents[0].socket.get()), second(agents[0].socket.get());
  auto theirs = engine.accept(), others = engine.accept();
  char byte = 0;
  ASSERT_EQ(::write(first.fd(), "1", 1), 1);
  ASSERT_EQ(::write(second.fd(), "2", 1), 1);
  EXPECT_EQ(::read(theirs.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '1');
  EXPECT_EQ(::read(others.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '2');
  engine.stop();
  EXPECT_THROW(Connection(agents[0].socket.get()), EngineError);
}

TEST(Connections, EndThoughAForkHasACopyAndLiveThoughTheForkEnds) {
  FakeEngine engine;
  const auto agents = engine.start({});
  Connection connection(agents[0].socket.get());
  auto theirs = engine.accept();
  auto [wait, go_on] = sys::pipe_pair();
  const pid_t copier = ::fork();
  if (copier == 0) {
    { const Connection copy = std::move(connection); }
    ::_exit(0);
  }
  EXPECT_EQ(sys::take_exit(sys::open_pidfd(copier).get(), true), (sys::ExitStatus{0, 0}));
  EXPECT_FALSE(has_ended(theirs.get(), 50));
  const pid_t holder = ::fork();
  if (holder == 0) {
    theirs.reset();
    go_on.reset();
    char byte;
    (void)!::read(wait.get(), &byte, 1);
    ::_exit(0);
  }
  std::thread agent([&] {
    EXPECT_TRUE(has_ended(theirs.get(), 4000));
    theirs.reset();
  });
  connection.close();
  agent.join();
  go_on.reset();
  sys::take_exit(sys::open_pidfd(holder).get(), true);
}

TEST(Connections, WaitUntilTheAgentHasClosedThem) {
  FakeEngine engine;
  const auto agents = engine.start({});
  Connection connection(agents[0].socket.get());
  auto theirs = engine.accept();
  std::atomic<bool> closed = false;
  std::thread agent([&] {
    EXPECT_TRUE(has_ended(theirs.get(), 5000));
    EXPECT_EQ(::write(theirs.get(), "late words", 10), 10);
    std::this_thread::sleep_for(100ms);
    closed = true;
    theirs.reset();
  });
  connection.close();
  EXPECT_TRUE(closed);
  agent.join();
}

TEST(LocalEngine, StartsARealAgent) {
  LocalEngine engine;
  const auto agents = engine.start({});
  const Connection connection(agents[0].socket.get());
  wire::Channel channel{sys::Descriptor(::dup(connection.fd()))};
  channel.send(wire::encode({5, 0}, wire::CountKept{}));
  const auto frame = channel.receive(now() + 10s);
  ASSERT_TRUE(frame);
  const auto answer = wire::decode_addressed<wire::AgentToDriver>(*frame);
  EXPECT_EQ(answer.envelope, (wire::Envelope{5, 0}));
  EXPECT_TRUE(std::holds_alternative<wire::KeptWorkers>(answer.message));
  EXPECT_NE(::getsid(engine.agent_pid()), ::getsid(0)) << "Ctrl-C on the terminal would reach it";
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(engine.agent_pid()) + "/fd/0"), "/dev/null");
}

TEST(LocalEngine, TellsWhenTheAgentIsLost) {
  LocalEngine engine;
  const auto agents = engine.start({});
  ::kill(engine.agent_pid(), SIGKILL);
  EXPECT_TRUE(has_ended(agents[0].socket.get(), 5000));
  const auto pidfd = sys::open_pidfd(engine.agent_pid());
  pollfd item{pidfd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&item, 1, 5000), 1);
  const auto lost = engine.lost();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].node, 0);
  EXPECT_THAT(lost[0].why, HasSubstr("agent has ended"));
  EXPECT_TRUE(engine.lost().empty()) << "told once";
}

TEST(LocalEngine, TheAgentEndsWithTheSocket) {
  LocalEngine engine;
  auto agents = engine.start({});
  const auto pidfd = sys::open_pidfd(engine.agent_pid());
  agents.clear();
  pollfd item{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
}

TEST(LocalEngine, KillsAnAgentThatDoesNotEnd) {
  LocalEngine engine(LocalEngine::Options{.agent = {}, .stop_timeout = std::chrono::milliseconds(50)});
  const auto agents = engine.start({});
  const int pid = engine.agent_pid();
  ::kill(pid, SIGSTOP);
  engine.stop();
  EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST(LocalEngine, AForkedCopyLeavesTheAgentAlone) {
  LocalEngine engine;
  const auto agents = engine.start({});
  const pid_t child = ::fork();
  if (child == 0) {
    engine.stop();
    ::_exit(0);
  }
  EXPECT_EQ(sys::take_exit(sys::open_pidfd(child).get(), true), (sys::ExitStatus{0, 0}));
  EXPECT_FALSE(has_ended(agents[0].socket.get(), 100));
}

class FindAgent : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("LOCKSTEP_AGENT"); }
};

TEST_F(FindAgent, FindsTheOneThatWasBuiltWithUs) { EXPECT_EQ(find_agent().filename(), "lockstep-agent"); }

TEST_F(FindAgent, TheEnvironmentDecides) {
  ::setenv("LOCKSTEP_AGENT", "/bin/true", 1);
  EXPECT_EQ(find_agent(), "/bin/true");
  ::setenv("LOCKSTEP_AGENT", "/no/such/agent", 1);
  try {
    find_agent();
    FAIL();
  } catch (const EngineError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"/no/such/agent\""));
  }
}

TEST(LocalEngine, AMissingAgentIsAnError) {
  LocalEngine engine(LocalEngine::Options{.agent = "/no/such/agent", .stop_timeout = {}});
  EXPECT_THROW(engine.start({}), EngineError);
  EXPECT_EQ(engine.agent_pid(), 0);
}

}  // namespace
}  // namespace lockstep::engine
