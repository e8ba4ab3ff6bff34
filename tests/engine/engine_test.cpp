#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "engine/fake_engine.h"
#include "engine/local/local_engine.h"
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
  const auto sockets = this->engine_.start({});
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_FALSE(has_ended(sockets[0].get(), 50));
  this->engine_.stop();
  EXPECT_TRUE(has_ended(sockets[0].get(), 5000));
  this->engine_.stop();
}

TYPED_TEST(Engines, StartsAgainAfterStop) {
  const auto first = this->engine_.start({});
  EXPECT_THROW(this->engine_.start({}), InternalError);
  this->engine_.stop();
  const auto second = this->engine_.start({});
  EXPECT_FALSE(has_ended(second[0].get(), 50));
}

TYPED_TEST(Engines, RefusesWhatItCannotServe) { EXPECT_THROW(this->engine_.start({.nodes = 0}), ConfigError); }

TEST(FakeEngine, HasAsManyAgentsAsAskedFor) {
  FakeEngine engine;
  const auto sockets = engine.start({.nodes = 3});
  ASSERT_EQ(engine.agents.size(), 3u);
  ASSERT_EQ(::write(engine.agents[2].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(sockets[2].get(), &byte, 1), 1);
}

TEST(LocalEngine, StartsARealAgent) {
  LocalEngine engine;
  wire::Channel channel(std::move(engine.start({})[0]));
  channel.send(wire::encode(wire::Configure{{"true"}, false, {}, ""}));
  const auto frame = channel.receive(now() + 10s);
  ASSERT_TRUE(frame);
  EXPECT_EQ(std::get<wire::AgentReady>(wire::decode<wire::AgentToDriver>(*frame)).pid, engine.agent_pid());
  EXPECT_NE(::getsid(engine.agent_pid()), ::getsid(0)) << "Ctrl-C on the terminal would reach it";
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(engine.agent_pid()) + "/fd/0"), "/dev/null");
}

TEST(LocalEngine, TheAgentEndsWithTheSocket) {
  LocalEngine engine;
  auto sockets = engine.start({});
  const auto pidfd = sys::open_pidfd(engine.agent_pid());
  sockets.clear();
  pollfd item{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 5000), 1);
}

TEST(LocalEngine, KillsAnAgentThatDoesNotEnd) {
  LocalEngine engine(LocalEngine::Options{.agent = {}, .stop_timeout = std::chrono::milliseconds(50)});
  const auto sockets = engine.start({});
  const int pid = engine.agent_pid();
  ::kill(pid, SIGSTOP);
  engine.stop();
  EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST(LocalEngine, AForkedCopyLeavesTheAgentAlone) {
  LocalEngine engine;
  const auto sockets = engine.start({});
  const pid_t child = ::fork();
  if (child == 0) {
    engine.stop();
    ::_exit(0);
  }
  EXPECT_EQ(sys::take_exit(sys::open_pidfd(child).get(), true), (sys::ExitStatus{0, 0}));
  EXPECT_FALSE(has_ended(sockets[0].get(), 100));
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
