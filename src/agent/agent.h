#pragma once

#include <memory>
#include <optional>

#include "agent/attempt.h"
#include "agent/driver_link.h"
#include "agent/fork_server.h"
#include "agent/loop.h"
#include "sys/descriptor.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// One node: does what the driver at the other end of a socket says (src/wire/messages.h), and is gone, with everything
/// it started, when the driver is. One attempt at a time; one warm fork server, kept as long as Configure stays the
/// same, and with it the workers that KeepWorkers kept.
class Agent {
 public:
  struct Options {
    sys::Descriptor driver;  ///< connected stream socket
    int parent = 0;          ///< the process whose end is ours too; 0: none
  };

  explicit Agent(Options options);

  /// Until the driver is gone or says Shutdown, or SIGTERM. Returns when no process that it started is left.
  void run();

 private:
  void on(wire::Configure& message);
  void on(wire::StartAttempt& message);
  void on(wire::StopAttempt& message);
  void on(wire::StartWorker& message);
  void on(wire::StopWorker& message);
  void on(wire::KeepWorkers& message);
  void on(wire::CountKept& message);
  void on(wire::DumpStacks& message);
  void on(wire::ToWorker& message);
  void on(wire::Shutdown& message);

  /// What the worker starts bears our name.
  void mark(wire::WorkerSpec& worker) const;
  void start_server();
  void server_ready();
  void server_died(const std::string& why);
  void make_attempt(wire::StartAttempt start);
  void begin_attempt();
  void fail(const std::string& message);
  void child_ended();
  /// Ends the attempt when none of its processes is left, else kills what is.
  void sweep();
  std::vector<int> not_orphans() const;
  bool running() const;
  Attempt* running(int attempt);

  Loop loop_;
  std::string id_;  ///< the engine's name for us
  std::optional<DriverLink> driver_;
  sys::Descriptor parent_;
  Watch parent_watch_;
  wire::Configure configure_;
  bool configured_ = false;
  bool ready_is_due_ = false;  ///< a Configure waits for its answer
  std::unique_ptr<ForkServer> server_;
  std::unique_ptr<Attempt> attempt_;        ///< the one that runs, or the workers that are kept
  std::optional<wire::StartAttempt> next_;  ///< waits for kept workers, which do not fit it, to be gone
  bool attempt_waits_ = false;              ///< for the fork server
  bool sweeping_ = false;                   ///< the attempt's workers are gone, their children perhaps not
};

}  // namespace lockstep::agent
