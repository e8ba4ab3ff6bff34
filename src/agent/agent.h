#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/control_link.h"
#include "agent/fork_servers.h"
#include "agent/loop.h"
#include "agent/orphans.h"
#include "agent/run.h"
#include "sys/descriptor.h"

namespace lockstep::agent {

/// The agent of one node. Serves many runs at once from one set of warm fork servers. Each run has its own connection,
/// which arrives over the control connection. When the control connection ends, the agent ends, and so does everything
/// it started.
class Agent {
 public:
  struct Options {
    sys::Descriptor control;  ///< connected packet socket (control_link.h)
    int parent = 0;           ///< the agent ends when this process does; 0: none
  };

  /// Throws EngineError if `control` is not such a socket.
  explicit Agent(Options options);

  /// Runs until the control connection ends or SIGTERM comes. Returns when no process that it started is left.
  void run();

 private:
  void add_run(sys::Descriptor socket);
  void sweep() { orphans_.sweep(servers_.pids()); }
  void child_ended();

  Loop loop_;
  std::string id_;  ///< the engine's name for this agent
  Orphans orphans_;
  ForkServers servers_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::optional<ControlLink> control_;
  sys::Descriptor parent_;
  Watch parent_watch_;
};

}  // namespace lockstep::agent
