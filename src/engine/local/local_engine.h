#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "engine/engine.h"
#include "sys/process.h"

namespace lockstep::engine {

/// One agent on this machine, as a child process with an inherited socket; no port is opened. The agent has its own
/// session, so that Ctrl-C on a terminal reaches only the caller. It writes to the caller's standard output and error.
/// It ends when the caller does, even if other processes hold copies of the socket. If the agent was killed, stop()
/// kills the processes that it left behind.
class LocalEngine : public Engine {
 public:
  struct Options {
    std::filesystem::path agent;                   ///< the agent's program; empty: find_agent()
    std::chrono::milliseconds stop_timeout{5000};  ///< after this it is killed
  };

  LocalEngine() = default;
  explicit LocalEngine(Options options) : options_(std::move(options)) {}
  ~LocalEngine() override;

  std::vector<AgentHandle> start(const AgentSpec& spec) override;
  std::vector<LostNode> lost() override;
  void stop() override;

  /// 0 if none runs.
  int agent_pid() const { return agent_.pid; }

 private:
  Options options_;
  sys::Process agent_;
  bool told_lost_ = false;
  std::string mark_;  ///< NAME=VALUE in the environment of the agent and of everything it starts
  int owner_ = 0;     ///< the process that started it: a forked copy of this object must not stop it
};

/// The path that find_agent() tries after LOCKSTEP_AGENT, for programs that are built against an installed Lockstep.
void set_default_agent(std::string path);

/// The agent's program: LOCKSTEP_AGENT, otherwise the default path, otherwise the one installed or built with the
/// library or executable that contains this code. Throws EngineError with the places that were searched.
std::filesystem::path find_agent();

}  // namespace lockstep::engine
