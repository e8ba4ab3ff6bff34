#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/control_link.h"
#include "agent/fork_servers.h"
#include "agent/head.h"
#include "agent/joined.h"
#include "agent/loop.h"
#include "agent/orphans.h"
#include "agent/run.h"
#include "sys/descriptor.h"

namespace lockstep::agent {

/// The agent of one node. Serves many runs at once from one set of warm fork servers. Each run has its own connection,
/// which arrives over the control connection, or on another node than the driver's over the connection to the head.
/// When that ends, the agent ends, and so does everything it started.
class Agent {
 public:
  struct Options {
    sys::Descriptor control;                ///< connected packet socket (control_link.h)
    int parent = 0;                         ///< the agent ends when this process does; 0: none
    sys::Descriptor input{};                ///< the agent ends when nothing more can come from it; empty: none
    std::optional<Joined::Options> join{};  ///< instead of `control`: it joins the head of another node
  };

  /// Throws EngineError if `control` is not such a socket.
  explicit Agent(Options options);

  /// Runs until its connection ends or SIGTERM comes. Returns when no process that it started is left. Throws
  /// EngineError if it could not join.
  void run();

 private:
  void add_run(sys::Descriptor socket);
  void join(Joined::Options options);
  void sweep() { orphans_.sweep(servers_.pids()); }
  void child_ended();
  void read_input();
  bool is_notice(int signal);

  Loop loop_;
  Orphans orphans_;
  ForkServers servers_;
  Run::Place place_;
  std::optional<Head> head_;
  std::optional<Joined> joined_;
  std::string why_not_joined_;
  bool noticed_ = false;  ///< a signal has come that may have been a notice
  std::vector<std::unique_ptr<Run>> runs_;
  std::optional<ControlLink> control_;
  sys::Descriptor parent_, input_;
  Watch parent_watch_, input_watch_;
};

}  // namespace lockstep::agent
