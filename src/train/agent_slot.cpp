#include "train/agent_slot.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/log.h"
#include "driver/agent_link.h"
#include "engine/local/local_engine.h"

namespace lockstep::train {
namespace {

constexpr int kAnswerWithin = 5000;  // milliseconds

/// Whether the other end is gone. An idle agent sends nothing.
bool is_closed(int socket) {
  char byte;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

engine::Connection ProcessAgents::connect() {
  const std::lock_guard lock(mutex_);
  look_for_losses();
  if (!engine_) {
    auto started = make_();
    control_ = std::move(started->start(spec_).front().socket);
    engine_ = std::move(started);
    owner_ = ::getpid();
  }
  return engine::Connection(control_.get());
}

void ProcessAgents::mark_lost(std::vector<driver::NodeOffer>& nodes) {
  const std::lock_guard lock(mutex_);
  look_for_losses();
  for (const int node : lost_)
    if (static_cast<std::size_t>(node) < nodes.size()) nodes[static_cast<std::size_t>(node)].lost = true;
}

void ProcessAgents::sweep_if_dead() {
  const std::lock_guard lock(mutex_);
  look_for_losses();
}

void ProcessAgents::look_for_losses() {
  if (!engine_) return;
  for (const engine::LostNode& each : engine_->lost()) {
    log_debug("node " + std::to_string(each.node) + " is lost: " + each.why);
    lost_.insert(each.node);
  }
  if (owner_ == ::getpid() && !lost_.contains(0) && !is_closed(control_.get())) return;
  control_.reset();
  engine_.reset();  // also ends what a dead agent left behind
  lost_.clear();
}

ProcessAgents& process_agents() {
  static auto* instance = new ProcessAgents([] { return std::make_unique<engine::LocalEngine>(); });
  return *instance;
}

// ---------------------------------------------------------------- kept workers

int AgentSlot::connect() {
  const std::lock_guard lock(connection_mutex_);
  if (!connection_ || is_closed(connection_.fd())) connection_ = agents_.connect();
  return connection_.fd();
}

void AgentSlot::disconnect() {
  {
    const std::lock_guard lock(connection_mutex_);
    connection_.close();
  }
  agents_.sweep_if_dead();
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
                                                 const LeaseResources& lease) {
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
  plan.wiring.place = [this, scaling = plan.options.scaling, env = plan.program.fork_server.env] {
    return lease_.place(scaling, env, [this](auto& nodes) { agents_.mark_lost(nodes); });
  };
  try {
    const auto reconnect = [this] {
      disconnect();
      if (stopped_.take()) throw EngineError("[worker_group] the workers were stopped");
      return connect();
    };
    const driver::AgentAccess access{connect(), run_id_, reconnect};
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
  if (connection_) ::shutdown(connection_.fd(), SHUT_RDWR);
}

}  // namespace lockstep::train
