#include "train/agent_slot.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "driver/agent_link.h"
#include "engine/local/local_engine.h"

namespace lockstep::train {
namespace {

constexpr int kAnswerWithin = 5000;  // milliseconds
/// An agent that closes a connection, but has not ended after this many milliseconds, goes on for other runs.
constexpr int kEndsWithin = 2000;

/// Whether the other end is gone. Waits for that.
bool is_closed(int socket, int milliseconds = 0) {
  pollfd item{socket, POLLRDHUP, 0};
  return ::poll(&item, 1, milliseconds) == 1;
}

driver::NodeOffer offer_of(const engine::AgentHandle& handle) {
  driver::NodeOffer offer{handle.name, handle.address, {}, {}};
  for (const auto& [name, amount] : handle.resources)
    if (name != "GPU") offer.amounts[name] = driver::to_amount(amount);
  for (const std::string& id : handle.gpu_ids) offer.gpus.push_back({id, driver::kWhole});
  offer.lost = !handle.works;
  return offer;
}

}  // namespace

void ProcessAgents::start(const Watcher& watcher) {
  const std::lock_guard lock(mutex_);
  start_locked(watcher);
}

engine::Connection ProcessAgents::connect(const Watcher& watcher) {
  const std::lock_guard lock(mutex_);
  start_locked(watcher);
  return engine::Connection(control_.get());
}

void ProcessAgents::start_locked(const Watcher& watcher) {
  look_for_losses();
  if (engine_) return;
  auto started = make_();
  engine::AgentSpec spec = spec_;
  spec.interrupts = watcher.interrupts;
  spec.say = watcher.say;
  if (watcher.enough)
    spec.enough = [&](const std::vector<engine::AgentHandle>& handles) {
      std::vector<driver::NodeOffer> here;
      for (const auto& handle : handles) here.push_back(offer_of(handle));
      return watcher.enough(here);
    };
  auto handles = started->start(spec);
  control_ = std::move(handles.front().socket);
  nodes_.clear();
  for (const auto& handle : handles) take_in(handle);
  started_ = alive();
  engine_ = std::move(started);
  owner_ = ::getpid();
}

void ProcessAgents::take_in(const engine::AgentHandle& handle) {
  const auto index = static_cast<std::size_t>(handle.node);
  if (index >= nodes_.size()) {
    driver::NodeOffer none;
    none.lost = true;
    nodes_.resize(index + 1, none);
  }
  nodes_[index] = offer_of(handle);
  lost_.erase(handle.node);
}

std::ptrdiff_t ProcessAgents::alive() const { return std::ranges::count(nodes_, false, &driver::NodeOffer::lost); }

std::vector<driver::NodeOffer> ProcessAgents::nodes() {
  const std::lock_guard lock(mutex_);
  look_for_losses();
  return nodes_;
}

bool ProcessAgents::may_get_nodes() {
  const std::lock_guard lock(mutex_);
  look_for_losses();
  return engine_ && lost_since_ && now() < *lost_since_ + ticks(replace_timeout_);
}

void ProcessAgents::mark_lost(std::vector<driver::NodeOffer>& nodes) {
  const std::lock_guard lock(mutex_);
  look_for_losses();
  for (const int node : lost_)
    if (const auto index = static_cast<std::size_t>(node); index < nodes.size()) nodes[index].lost = true;
}

void ProcessAgents::leave(int node) {
  const std::lock_guard lock(mutex_);
  lost_.insert(node);
  if (const auto index = static_cast<std::size_t>(node); index < nodes_.size()) nodes_[index].lost = true;
}

void ProcessAgents::sweep_if_dead(bool is_dying) {
  const std::lock_guard lock(mutex_);
  if (is_dying && engine_) is_closed(control_.get(), kEndsWithin);
  look_for_losses();
}

void ProcessAgents::look_for_losses() {
  if (!engine_) return;
  for (const engine::LostNode& each : engine_->lost()) {
    log_debug("node " + std::to_string(each.node) + " is lost: " + each.why);
    lost_.insert(each.node);
    if (const auto index = static_cast<std::size_t>(each.node); index < nodes_.size()) nodes_[index].lost = true;
    if (!lost_since_) lost_since_ = now();
  }
  for (const engine::AgentHandle& each : engine_->joined()) take_in(each);
  if (alive() >= started_) lost_since_.reset();
  if (owner_ == ::getpid() && !lost_.contains(0) && !is_closed(control_.get())) return;
  control_.reset();
  engine_.reset();  // also ends what a dead agent left behind
  lost_.clear();
  nodes_.clear();
  lost_since_.reset();
}

ProcessAgents& process_agents() {
  static auto* instance = new ProcessAgents([] { return std::make_unique<engine::LocalEngine>(); });
  return *instance;
}

// ---------------------------------------------------------------- kept workers

int AgentSlot::connect(const ProcessAgents::Watcher& watcher) {
  const std::lock_guard lock(connection_mutex_);
  if (!connection_ || is_closed(connection_.fd())) connection_ = agents_.connect(watcher);
  return connection_.fd();
}

void AgentSlot::disconnect() {
  bool is_dying = false;
  {
    const std::lock_guard lock(connection_mutex_);
    is_dying = !std::exchange(is_shut_down_, false) && connection_ && is_closed(connection_.fd());
    connection_.close();
  }
  agents_.sweep_if_dead(is_dying);
}

/// One run on the workers. The resources are released after it, unless keep() was called.
class AgentSlot::Use {
 public:
  explicit Use(AgentSlot& slot) : slot_(slot), lock_(slot.mutex_) { slot_.runner_ = std::this_thread::get_id(); }
  ~Use() {
    if (keeps_)
      slot_.lease_.set_driven(0);
    else
      slot_.lease_.release();
    slot_.runner_ = std::thread::id();
    slot_.stopped_.take();  // a stop() of this run is not one of the next
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  void keep() { keeps_ = true; }

 private:
  AgentSlot& slot_;
  const std::lock_guard<std::mutex> lock_;
  bool keeps_ = false;
};

std::optional<driver::RunOutcome> AgentSlot::run(driver::RunPlan& plan, std::uint64_t driven,
                                                 const LeaseResources& lease, const ProcessAgents::Watcher& watcher) {
  if (in_run())
    throw ConfigError(
        "[worker_group] a callback of a run started another run on the same workers, which do one thing at a time; "
        "start it when the first run has ended");
  Use use(*this);
  if (!lease_) {
    auto taken = lease(stopped_.fd());
    if (!taken) return std::nullopt;
    lease_ = *std::move(taken);
  }
  lease_.set_driven(driven);
  plan.wiring.place = [this, &plan] { return place(plan); };
  plan.wiring.room = [this, &plan] {
    return lease_.room(plan.options.scaling, [this](auto& nodes) { agents_.mark_lost(nodes); });
  };
  plan.wiring.leave = [this](int node) { agents_.leave(node); };
  if (!plan.group.keep_workers) plan.wiring.release = [this] { lease_.release(); };
  try {
    const auto reconnect = [&, this] {
      disconnect();
      if (stopped_.take()) throw EngineError("[worker_group] the workers were stopped");
      return connect(watcher);
    };
    const driver::AgentAccess access{connect(watcher), run_id_, reconnect};
    // A stop() that came before found no connection to end.
    if (stopped_.take()) {
      disconnect();
      return std::nullopt;
    }
    driver::RunOutcome outcome = driver::run(plan, access);
    if (!plan.group.keep_workers || !outcome.agent_usable) disconnect();
    // The workers of a run that did not finish have ended.
    if (plan.group.keep_workers && outcome.agent_usable && outcome.result.state == "finished") use.keep();
    return outcome;
  } catch (...) {
    disconnect();
    throw;
  }
}

/// After a loss it waits for another node, unless the workers fit on the others without crowding them, or an elastic
/// run has enough with them.
std::optional<driver::Placement> AgentSlot::place(const driver::RunPlan& plan) {
  const auto mark_lost = [this](auto& nodes) { agents_.mark_lost(nodes); };
  const bool may_wait = agents_.may_get_nodes();
  try {
    auto placement = lease_.place(plan.options.scaling, plan.program.fork_server.env, mark_lost);
    const bool is_enough = placement.world_size() > plan.options.scaling.num_workers.least;
    if (may_wait && placement.crowded && !is_enough) return std::nullopt;
    return placement;
  } catch (const Error&) {
    if (may_wait) return std::nullopt;
    throw;
  }
}

std::pair<int, std::string> AgentSlot::kept() {
  const std::lock_guard lock(mutex_);
  if (!connection_) return {0, ""};
  if (is_closed(connection_.fd())) return {0, "the agent is gone"};
  std::string why = "the agent did not answer";
  try {
    driver::AgentLink agent(connection_.fd(), run_id_);
    agent.send(0, wire::CountKept{});
    for (pollfd item{connection_.fd(), POLLIN, 0}; ::poll(&item, 1, kAnswerWithin) == 1;)
      while (auto received = agent.receive())
        if (const auto* kept = std::get_if<wire::KeptWorkers>(&received->message)) return {kept->alive, kept->lost};
  } catch (const Error& error) {
    why = error.what();
  }
  disconnect();
  return {0, why};
}

void AgentSlot::stop() {
  stopped_.request_stop(false);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) {
    stopped_.take();
    disconnect();
    return lease_.release();
  }
  // A run is active in another thread. The agent then kills its workers, and the run sees the end of the connection. If
  // it has no connection yet, it sees `stopped_`.
  const std::lock_guard connection_lock(connection_mutex_);
  if (!connection_) return;
  is_shut_down_ = true;
  ::shutdown(connection_.fd(), SHUT_RDWR);
}

}  // namespace lockstep::train
