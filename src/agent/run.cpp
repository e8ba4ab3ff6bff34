#include "agent/run.h"

#include <unistd.h>

#include "agent/node_environment.h"
#include "agent/node_facts.h"
#include "base/log.h"
#include "sys/agent_mark.h"
#include "sys/environment.h"
#include "sys/node.h"

namespace lockstep::agent {
namespace {

/// Orphans found up to this long before the end of a worker count as its own. Another worker may have ended at the same
/// time, and then they are found before this end is noticed.
constexpr auto kFoundBefore = 1s;

}  // namespace

Run::Run(Loop& loop, ForkServers& servers, sys::Descriptor socket, Place place, Handlers handlers)
    : loop_(loop),
      servers_(servers),
      place_(std::move(place)),
      handlers_(std::move(handlers)),
      driver_(loop, std::move(socket), place_.node,
              {.message = [this](wire::Addressed<wire::DriverToAgent>& message) { take(message); },
               .foreign = [this](const wire::Envelope& envelope, auto frame) { relay(envelope, frame); },
               .closed = [this] { closed(); },
               .full =
                   [this](bool full) {
                     if (attempt_) attempt_->pause(full);
                     for (const int node : nodes_) place_.relay->hold(node, stream_, full);
                   }}) {
  if (place_.relay != nullptr) stream_ = place_.relay->join(*this);
}

Run::~Run() {
  leave_server();
  if (place_.relay != nullptr) place_.relay->leave(stream_);
}

void Run::fail(const std::string& message) { driver_.send(wire::AgentFailed{message}); }

bool Run::running() const { return attempt_ && !attempt_->kept(); }

Attempt* Run::running(int attempt) { return running() && attempt_->number() == attempt ? attempt_.get() : nullptr; }

void Run::adapt(wire::WorkerSpec& worker) const {
  Value& env = worker.begin["env"];
  if (place_.node != 0) {
    Value own = Value::object();
    for (auto& [name, value] : sys::environment()) own[name] = value;
    for (const auto& [name, value] : env.items())
      if (travels(name)) own[name] = value;
    env = std::move(own);
  }
  if (!place_.agent_id.empty()) env[sys::kAgentId] = place_.agent_id;
  if (place_.lease) worker.begin["lease"] = Seconds(place_.lease->time_since_epoch()).count();
}

void Run::renew_lease() {
  if (running()) attempt_->send(-1, wire::encode(wire::Lease{Seconds(place_.lease->time_since_epoch()).count()}));
}

// ---------------------------------------------------------------- the driver says

void Run::take(wire::Addressed<wire::DriverToAgent>& message) {
  driver_.set_run(message.envelope.run);
  std::visit([this](auto& each) { on(each); }, message.message);
}

void Run::relay(const wire::Envelope& envelope, std::span<const std::uint8_t> frame) {
  driver_.set_run(envelope.run);
  if (place_.relay == nullptr || !place_.relay->send(envelope.node, stream_, frame))
    return driver_.send_for(envelope.node, wire::NodeLost{"the head node has no connection to it"});
  if (nodes_.insert(envelope.node).second && driver_.full()) place_.relay->hold(envelope.node, stream_, true);
}

void Run::on(wire::Configure& message) {
  if (place_.node != 0) message.env = environment_here(message.env);
  if (!place_.agent_id.empty()) message.env.insert_or_assign(sys::kAgentId, place_.agent_id);
  if (running()) return fail("[agent] Configure came while attempt " + std::to_string(attempt_->number()) + " runs");
  if (!configure_ || !same_server(*configure_, message)) {
    leave_server();
    if (attempt_) attempt_->stop(false, {});  // kept workers of the old server
  }
  configure_ = std::move(message);
  facts_ = facts_of(*configure_);
  // The driver tells what is missing on which nodes.
  if (place_.node != 0 && is_anything_missing(facts_))
    return driver_.send(wire::AgentReady{wire::kVersion, ::getpid(), place_.name, facts_});
  try {
    join_server();
  } catch (const EngineError& error) {
    return fail(error.what());
  }
  ready_is_due_ = true;
  if (server_->ready()) server_ready();
}

void Run::on(wire::StartAttempt& message) {
  if (place_.node != 0)
    if (const std::string why = not_shared(message, place_.name); !why.empty()) return fail(why);
  memory_.clear();
  for (wire::WorkerSpec& worker : message.workers) adapt(worker);
  if (!configure_) return fail("[agent] an attempt was started before Configure");
  if (running() || next_) return fail("[agent] attempt " + std::to_string(attempt_->number()) + " has not ended");
  if (message.workers.empty()) return driver_.send(wire::AttemptEnded{message.attempt});
  if (attempt_ && attempt_->fits(message)) return attempt_->start_again(std::move(message));
  if (!attempt_) return make_attempt(std::move(message));
  next_ = std::move(message);
  attempt_->stop(false, {});
}

void Run::make_attempt(wire::StartAttempt start) {
  attempt_ = std::make_unique<Attempt>(loop_, driver_, std::move(start),
                                       Attempt::Handlers{.worker_gone = handlers_.worker_gone, .all_gone = [this] {
                                                           sweeping_ = true;
                                                           check_end();
                                                         }});
  try {
    join_server();
  } catch (const EngineError& error) {
    fail(error.what());
    return attempt_->abandon();
  }
  attempt_->start(*server_);
}

void Run::on(wire::StopAttempt& message) {
  if (Attempt* attempt = running(message.attempt)) return attempt->stop(message.interrupt, Seconds(message.grace));
  if (next_ && next_->attempt == message.attempt) next_.reset();
  driver_.send(wire::AttemptEnded{message.attempt});  // the driver may wait for an attempt that never started
}

void Run::on(wire::StartWorker& message) {
  adapt(message.worker);
  if (Attempt* attempt = running(message.attempt)) attempt->restart(message.worker);
}

void Run::on(wire::StopWorker& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->kill(message.rank);
}

void Run::on(wire::KeepWorkers& message) {
  Attempt* attempt = running(message.attempt);
  if (attempt == nullptr) return;
  if (attempt->keep())
    driver_.send(wire::AttemptEnded{message.attempt});
  else
    attempt->stop(false, {});
}

void Run::on(wire::CountKept&) {
  wire::KeptWorkers kept;
  if (attempt_ && attempt_->kept()) std::tie(kept.alive, kept.lost) = attempt_->survey();
  driver_.send(kept);
}

void Run::on(wire::DumpStacks& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->dump_stacks(Seconds(message.timeout));
}

void Run::on(wire::ReleaseCheckpoint& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->release(message.rank, message.report);
}

void Run::on(wire::ToWorker& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->send(message.rank, message.message);
}

// ---------------------------------------------------------------- the fork server

void Run::join_server() {
  if (server_ != nullptr) return;
  server_ = &servers_.get(*configure_);
  server_->join(*this);
}

void Run::leave_server() {
  ready_is_due_ = false;
  if (ForkServer* server = std::exchange(server_, nullptr)) server->leave(*this);
}

void Run::server_ready() {
  if (!std::exchange(ready_is_due_, false)) return;
  auto facts = facts_;
  facts.insert(server_->versions().begin(), server_->versions().end());
  driver_.send(wire::AgentReady{wire::kVersion, ::getpid(), place_.name, std::move(facts)});
}

void Run::server_died(const std::string& why, bool came_up) {
  server_ = nullptr;
  ready_is_due_ = false;
  if (came_up)
    log_debug(why);
  else
    fail(why);
}

// ---------------------------------------------------------------- the end

void Run::check_end() {
  if (!sweeping_ || handlers_.orphans_left(attempt_->first_end() - kFoundBefore)) return;
  sweeping_ = false;
  if (running()) driver_.send(wire::AttemptEnded{attempt_->number()});
  memory_ = attempt_->take_memory();
  attempt_.reset();
  if (auto next = std::exchange(next_, std::nullopt); next && !closed_)
    make_attempt(std::move(*next));
  else
    maybe_over();
}

void Run::closed() {
  closed_ = true;
  std::erase_if(nodes_, [this](int node) { return !place_.relay->close(node, stream_); });
  if (attempt_) {
    attempt_->stop(false, {});
    attempt_->drop_checkpoints();
  }
  maybe_over();
}

void Run::maybe_over() {
  if (closed_ && !attempt_ && nodes_.empty()) handlers_.over(*this);
}

void Run::node_lost(int node, const std::string& why) {
  if (nodes_.erase(node) == 0) return;
  driver_.send_for(node, wire::NodeLost{why});
  maybe_over();
}

void Run::node_ended(int node) { node_lost(node, "the agent there has given up this run"); }

}  // namespace lockstep::agent
