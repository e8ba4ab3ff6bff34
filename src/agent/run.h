#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/attempt.h"
#include "agent/driver_link.h"
#include "agent/fork_servers.h"
#include "agent/loop.h"
#include "sys/descriptor.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// One run of the driver, or one group of workers that is kept from run to run. It has its own connection, at most one
/// attempt at a time, and the workers that KeepWorkers kept. It carries out the driver's messages
/// (src/wire/messages.h). When the connection ends, its workers and their children are killed; those of other runs are
/// not touched.
class Run : private ForkServer::Client {
 public:
  struct Handlers {
    std::function<void()> worker_gone;          ///< a worker ended; its orphans must be killed
    std::function<bool(Instant)> orphans_left;  ///< whether orphans that were found at this time or later still live
    std::function<void(Run&)> over;             ///< the last call: the connection has ended and no process is left
  };

  /// `agent_id` marks everything that the agent starts.
  Run(Loop& loop, ForkServers& servers, sys::Descriptor socket, std::string agent_id, Handlers handlers);
  ~Run();

  /// A process has ended, so the attempt may be over.
  void check_end();

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

  void server_ready() override;
  void server_died(const std::string& why, bool came_up) override;

  void take(wire::Addressed<wire::DriverToAgent>& message);
  void closed();
  /// Sets server_ to the server for configure_. Throws EngineError.
  void join_server();
  void leave_server();
  void make_attempt(wire::StartAttempt start);
  /// Marks the worker's environment with the agent's id, so that everything it starts has it too.
  void mark(wire::WorkerSpec& worker) const;
  void fail(const std::string& message);
  bool running() const;
  Attempt* running(int attempt);

  Loop& loop_;
  ForkServers& servers_;
  const std::string agent_id_;
  Handlers handlers_;
  DriverLink driver_;
  std::optional<wire::Configure> configure_;
  ForkServer* server_ = nullptr;
  bool ready_is_due_ = false;               ///< a Configure waits for its answer
  std::unique_ptr<Attempt> attempt_;        ///< the running attempt, or the kept workers
  std::optional<wire::StartAttempt> next_;  ///< waits until kept workers that do not fit it are gone
  bool sweeping_ = false;                   ///< the attempt's workers are gone, but maybe not their children
  bool closed_ = false;
};

}  // namespace lockstep::agent
