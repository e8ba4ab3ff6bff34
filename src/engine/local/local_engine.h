#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "engine/engine.h"
#include "sys/process.h"

namespace lockstep::engine {

/// One agent on this machine, as a child process with an inherited socket: nothing listens anywhere.
/// The agent has a session of its own, so that Ctrl-C on a terminal reaches only the caller; it writes to the caller's
/// standard output and error. It also ends when the caller does, whatever other processes hold copies of the socket.
/// What an agent that was killed has left behind is killed by stop().
class LocalEngine : public Engine {
 public:
  struct Options {
    std::filesystem::path agent;                   ///< the agent's program; empty: find_agent()
    std::chrono::milliseconds stop_timeout{5000};  ///< then it is killed
  };

  LocalEngine() = default;
  explicit LocalEngine(Options options) : options_(std::move(options)) {}
  ~LocalEngine() override;

  std::vector<sys::Descriptor> start(const AgentSpec& spec) override;
  void stop() override;

  /// 0 when none runs.
  int agent_pid() const { return agent_.pid; }

 private:
  Options options_;
  sys::Process agent_;
  std::string mark_;  ///< NAME=VALUE in the environment of the agent, and of all that it starts
  int owner_ = 0;     ///< the process that started it: a forked copy of this object must not stop it
};

/// Where find_agent() looks first after LOCKSTEP_AGENT: for programs that are built against an installed Lockstep.
void set_default_agent(std::string path);

/// The agent's program: LOCKSTEP_AGENT, else the default, else the one installed or built with the library or
/// executable that holds this code. Throws EngineError with the places that were searched.
std::filesystem::path find_agent();

}  // namespace lockstep::engine
