#include "agent/run.h"

#include <unistd.h>

#include "base/log.h"
#include "sys/agent_mark.h"
#include "sys/node.h"

namespace lockstep::agent {
namespace {

/// Orphans found up to this long before the end of a worker count as its own. Another worker may have ended at the same
/// time, and then they are found before this end is noticed.
constexpr auto kFoundBefore = 1s;

}  // namespace

Run::Run(Loop& loop, ForkServers& servers, sys::Descriptor socket, std::string agent_id, Handlers handlers)
    : loop_(loop),
      servers_(servers),
      agent_id_(std::move(agent_id)),
      handlers_(std::move(handlers)),
      driver_(loop, std::move(socket),
              {.message = [this](wire::Addressed<wire::DriverToAgent>& message) { take(message); },
               .closed = [this] { closed(); },
               .full =
                   [this](bool full) {
                     if (attempt_) attempt_->pause(full);
                   }}) {}

Run::~Run() { leave_server(); }

void Run::fail(const std::string& message) { driver_.send(wire::AgentFailed{message}); }

bool Run::running() const { return attempt_ && !attempt_->kept(); }

Attempt* Run::running(int attempt) { return running() && attempt_->number() == attempt ? attempt_.get() : nullptr; }

void Run::mark(wire::WorkerSpec& worker) const {
  if (!agent_id_.empty()) worker.begin["env"][sys::kAgentId] = agent_id_;
}

// ---------------------------------------------------------------- the driver says

void Run::take(wire::Addressed<wire::DriverToAgent>& message) {
  const auto [run, node] = message.envelope;
  driver_.set_run(run);
  if (node != 0) return driver_.send(wire::NodeLost{"the head node has no connection to it"}, node);
  std::visit([this](auto& each) { on(each); }, message.message);
}

void Run::on(wire::Configure& message) {
  if (!agent_id_.empty()) message.env.insert_or_assign(sys::kAgentId, agent_id_);
  if (running()) return fail("[agent] Configure came while attempt " + std::to_string(attempt_->number()) + " runs");
  if (!configure_ || !same_server(*configure_, message)) {
    leave_server();
    if (attempt_) attempt_->stop(false, {});  // kept workers of the old server
  }
  configure_ = std::move(message);
  try {
    join_server();
  } catch (const EngineError& error) {
    return fail(error.what());
  }
  ready_is_due_ = true;
  if (server_->ready()) server_ready();
}

void Run::on(wire::StartAttempt& message) {
  for (wire::WorkerSpec& worker : message.workers) mark(worker);
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
  mark(message.worker);
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
  if (std::exchange(ready_is_due_, false)) driver_.send(wire::AgentReady{wire::kVersion, ::getpid(), sys::host_name()});
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
  attempt_.reset();
  if (auto next = std::exchange(next_, std::nullopt); next && !closed_)
    make_attempt(std::move(*next));
  else if (closed_)
    handlers_.over(*this);
}

void Run::closed() {
  closed_ = true;
  if (attempt_)
    attempt_->stop(false, {});
  else
    handlers_.over(*this);
}

}  // namespace lockstep::agent
