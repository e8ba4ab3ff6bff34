#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/attempt.h"
#include "agent/driver_link.h"
#include "agent/fork_servers.h"
#include "agent/loop.h"
#include "agent/relay.h"
#include "base/clock.h"
#include "sys/descriptor.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// One run of the driver, or one group of workers that is kept from run to run. It has its own connection, at most one
/// attempt at a time, and the workers that KeepWorkers kept. It carries out the driver's messages
/// (src/wire/messages.h), and on the head relays those for other nodes. When the connection ends, its workers and their
/// children are killed, on all nodes; those of other runs are not touched.
class Run : private ForkServer::Client, private Relay::Client {
 public:
  /// Where it runs.
  struct Place {
    int node = 0;                            ///< 0: the head, where the driver is
    std::string name;                        ///< of the node
    std::string agent_id;                    ///< marks everything that the agent starts
    Relay* relay = nullptr;                  ///< borrowed; on the head, if there are other nodes
    std::shared_ptr<const Instant> lease{};  ///< when the workers must have ended; null on the head
  };
  struct Handlers {
    std::function<void()> worker_gone;          ///< a worker ended; its orphans must be killed
    std::function<bool(Instant)> orphans_left;  ///< whether orphans that were found at this time or later still live
    std::function<void(Run&)> over;             ///< the last call: the connection has ended and no process is left
  };

  Run(Loop& loop, ForkServers& servers, sys::Descriptor socket, Place place, Handlers handlers);
  ~Run() override;

  /// A process has ended, so the attempt may be over.
  void check_end();
  /// This node will be taken away.
  void tell_preempted(int signal) { driver_.send(wire::Preempted{signal}); }
  /// Tells the workers the new end of the lease.
  void renew_lease();

 private:
  void on(wire::Configure& message);
  void on(wire::StartAttempt& message);
  void on(wire::StopAttempt& message);
  void on(wire::StartWorker& message);
  void on(wire::StopWorker& message);
  void on(wire::KeepWorkers& message);
  void on(wire::CountKept& message);
  void on(wire::DumpStacks& message);
  void on(wire::ReleaseCheckpoint& message);
  void on(wire::ToWorker& message);

  void server_ready() override;
  void server_died(const std::string& why, bool came_up) override;

  void from_node(int, std::span<const std::uint8_t> frame) override { driver_.pass_on(frame); }
  void node_lost(int node, const std::string& why) override;
  void node_ended(int node) override;

  void take(wire::Addressed<wire::DriverToAgent>& message);
  void relay(const wire::Envelope& envelope, std::span<const std::uint8_t> frame);
  void closed();
  /// Sets server_ to the server for configure_. Throws EngineError.
  void join_server();
  void leave_server();
  void make_attempt(wire::StartAttempt start);
  /// The environment for this node, marked with the agent's id, so that everything that is started has it too.
  void adapt(wire::WorkerSpec& worker) const;
  void maybe_over();
  void fail(const std::string& message);
  bool running() const;
  Attempt* running(int attempt);

  Loop& loop_;
  ForkServers& servers_;
  const Place place_;
  Handlers handlers_;
  DriverLink driver_;
  std::optional<wire::Configure> configure_;
  std::map<std::string, std::string> facts_;  ///< of this node, for AgentReady
  ForkServer* server_ = nullptr;
  bool ready_is_due_ = false;               ///< a Configure waits for its answer
  std::unique_ptr<Attempt> attempt_;        ///< the running attempt, or the kept workers
  Worker::Memory memory_;                   ///< what the last attempt left, until the driver has surely opened it
  std::optional<wire::StartAttempt> next_;  ///< waits until kept workers that do not fit it are gone
  bool sweeping_ = false;                   ///< the attempt's workers are gone, but maybe not their children
  bool closed_ = false;
  Relay::Stream stream_ = 0;  ///< on other nodes
  std::set<int> nodes_;       ///< other nodes to which something was sent
};

}  // namespace lockstep::agent
