#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "driver/run_control.h"
#include "driver/run_loop.h"
#include "driver/run_plan.h"
#include "engine/connection.h"
#include "engine/engine.h"
#include "sys/descriptor.h"
#include "train/resource_pool.h"

namespace lockstep::train {

/// The agents that serve all runs of this process. The first run lets an engine start them; if the head's has died, the
/// next run starts new ones. Any thread may use it. A fork of the process starts its own.
class ProcessAgents {
 public:
  using MakeEngine = std::function<std::unique_ptr<engine::Engine>()>;

  /// A lost node may be replaced within `replace_timeout`.
  explicit ProcessAgents(MakeEngine make, engine::AgentSpec spec = {}, Seconds replace_timeout = Seconds(0))
      : make_(std::move(make)), spec_(std::move(spec)), replace_timeout_(replace_timeout) {}

  /// What may end the start of an engine that waits for nodes, and who is told about it.
  struct Watcher {
    std::vector<int> interrupts;
    std::function<void(const std::string&)> say;
    /// Whether a run can begin with these nodes if others do not come; none: it waits for all.
    std::function<bool(const std::vector<driver::NodeOffer>&)> enough;
  };

  /// Lets the engine start the agents, unless they run. Throws what the engine throws.
  void start(const Watcher& watcher = {});
  /// A connection for one run, or for a group of kept workers. Starts the agents too.
  engine::Connection connect(const Watcher& watcher = {});
  /// All nodes by index, since the start, with those that are lost; none before it.
  std::vector<driver::NodeOffer> nodes();
  /// Marks the nodes that the engine has lost.
  void mark_lost(std::vector<driver::NodeOffer>& nodes);
  /// Marks a node that will be taken away as lost.
  void leave(int node);
  /// Whether fewer nodes than at the start are there, and it is worth while to wait for others.
  bool may_get_nodes();
  /// Ends the processes that a dead agent left behind. Called when a run is over. `is_dying`: the agent has closed the
  /// run's connection, so its end is waited for; otherwise the next connection might still be made to it.
  void sweep_if_dead(bool is_dying);

 private:
  void look_for_losses();
  void start_locked(const Watcher& watcher);
  void take_in(const engine::AgentHandle& handle);
  std::ptrdiff_t alive() const;

  const MakeEngine make_;
  const engine::AgentSpec spec_;
  const Seconds replace_timeout_;
  std::mutex mutex_;  // guards those below
  std::unique_ptr<engine::Engine> engine_;
  sys::Descriptor control_;
  std::set<int> lost_;  ///< nodes
  std::vector<driver::NodeOffer> nodes_;
  std::ptrdiff_t started_ = 0;  ///< how many nodes there were
  std::optional<Instant> lost_since_;
  int owner_ = 0;
};

/// One agent, on this machine. Never destroyed. The agent ends when this process does, and a fork of this process must
/// not touch it.
ProcessAgents& process_agents();

/// A connection to the agent that stays open between runs, with the workers that they keep. Any thread may use it. It
/// does one run at a time; others wait. Between runs it holds the resources of the kept workers.
class AgentSlot {
 public:
  /// `agents` is borrowed.
  explicit AgentSlot(ProcessAgents& agents = process_agents()) : agents_(agents) {}
  AgentSlot(const AgentSlot&) = delete;
  AgentSlot& operator=(const AgentSlot&) = delete;

  /// Leases the resources of a run. Returns nothing if its wait was ended, for example because `stopped` (a
  /// descriptor) became readable.
  using LeaseResources = std::function<std::optional<Lease>(int stopped)>;

  /// Runs a plan that is complete but for `place`. `driven` is DrivenRun::id(). `lease` is called unless kept workers
  /// hold the resources already. Returns nothing if the run was stopped before it began. Throws ConfigError if it is
  /// called from a callback of a run on these workers.
  std::optional<driver::RunOutcome> run(driver::RunPlan& plan, std::uint64_t driven, const LeaseResources& lease,
                                        const ProcessAgents::Watcher& watcher = {});
  /// How many kept workers are alive, and a text that says how the others ended.
  std::pair<int, std::string> kept();
  /// Ends the workers and releases their resources. A run that uses them fails, and one that waits for resources is
  /// stopped. Any thread may call it.
  void stop();
  /// Whether the calling thread is in a run on these workers, that is, in a callback.
  bool in_run() const { return runner_ == std::this_thread::get_id(); }

 private:
  class Use;

  int connect(const ProcessAgents::Watcher& watcher);
  void disconnect();
  std::optional<driver::Placement> place(const driver::RunPlan& plan);

  ProcessAgents& agents_;
  std::mutex mutex_;                       // held during a run
  std::atomic<std::thread::id> runner_{};  ///< the thread that holds mutex_
  Lease lease_;                            ///< guarded by mutex_
  driver::RunControl stopped_;             ///< stop() was called during a run
  const int run_id_ = next_run_id();       ///< the id of the runs in messages
  std::mutex connection_mutex_;            // held only briefly; guards those below
  engine::Connection connection_;
  bool is_shut_down_ = false;  ///< by stop()
};

}  // namespace lockstep::train
