#include "agent/agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/log.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::agent {
namespace {

/// How long processes that were killed may take to vanish before the agent ends without them.
constexpr auto kLastWait = 3s;

/// In the environment of everything that this agent starts, so that the driver finds it when the agent is killed.
constexpr const char* kAgentId = "LOCKSTEP_AGENT_ID";

/// The environment as far as it can matter to a fork server, which a new one makes slow to start: workers get their
/// own.
std::map<std::string, std::string> server_env(std::map<std::string, std::string> env) {
  for (const char* name : {"PYTEST_CURRENT_TEST", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_"}) env.erase(name);
  return env;
}

bool equal(const wire::Configure& a, const wire::Configure& b) {
  if (a.program != b.program || a.fork_server != b.fork_server) return false;
  if (a.fork_server) return server_env(a.env) == server_env(b.env);
  return a.env == b.env && a.cwd == b.cwd;
}

/// SIGKILL to everything that descends from this process, until nothing is left. Orphans come to us: we are their
/// subreaper.
void kill_everything() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &child, nullptr);
  const Instant deadline = now() + kLastWait;
  for (;;) {
    for (const int pid : sys::descendants(::getpid())) ::kill(pid, SIGKILL);
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now());
    if ((reaped < 0 && errno == ECHILD) || left <= 0s) return;
    const timespec rest{left / 1s, (left % 1s).count()};
    ::sigtimedwait(&child, nullptr, &rest);
  }
}

}  // namespace

Agent::Agent(Options options) {
  if (const char* id = std::getenv(kAgentId)) id_ = id;
  sys::become_subreaper();
  loop_.on_signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP},
                   [this](int signal) { signal == SIGCHLD ? child_ended() : loop_.stop(); });
  driver_.emplace(
      loop_, std::move(options.driver),
      DriverLink::Handlers{
          .message = [this](wire::DriverToAgent& message) { std::visit([this](auto& each) { on(each); }, message); },
          .closed = [this] { loop_.stop(); },
          .full =
              [this](bool full) {
                if (attempt_) attempt_->pause(full);
              }});
  if (options.parent == 0) return;
  parent_ = sys::open_pidfd(options.parent);
  if (!parent_ || ::getppid() != options.parent) {
    loop_.post([this] { loop_.stop(); });
    return;
  }
  parent_watch_ = Watch(loop_, parent_.get());
  parent_watch_.on_readable([this] { loop_.stop(); });
}

void Agent::run() {
  loop_.run();
  kill_everything();
}

void Agent::fail(const std::string& message) { driver_->send(wire::AgentFailed{message}); }

bool Agent::running() const { return attempt_ && !attempt_->kept(); }

Attempt* Agent::running(int attempt) { return running() && attempt_->number() == attempt ? attempt_.get() : nullptr; }

void Agent::mark(wire::WorkerSpec& worker) const {
  if (!id_.empty()) worker.begin["env"][kAgentId] = id_;
}

// ---------------------------------------------------------------- the driver says

void Agent::on(wire::Configure& message) {
  if (!id_.empty()) message.env.insert_or_assign(kAgentId, id_);
  if (running()) return fail("[agent] it was configured while attempt " + std::to_string(attempt_->number()) + " runs");
  const bool same =
      configured_ && equal(configure_, message) && (!message.fork_server || (server_ && !server_->dead()));
  if (!same) {
    configure_ = std::move(message);
    configured_ = true;
    if (attempt_) attempt_->stop(false, {});  // the kept workers of the old server
    server_.reset();
    if (attempt_) attempt_->server_died();
    if (configure_.fork_server) start_server();
  }
  if (configure_.fork_server && !server_) return;
  ready_is_due_ = true;
  if (!configure_.fork_server || server_->ready()) server_ready();
}

void Agent::on(wire::StartAttempt& message) {
  for (wire::WorkerSpec& worker : message.workers) mark(worker);
  if (!configured_) return fail("[agent] an attempt was started before Configure");
  if (running() || next_) return fail("[agent] attempt " + std::to_string(attempt_->number()) + " has not ended");
  if (message.workers.empty()) {
    driver_->send(wire::AttemptEnded{message.attempt});
    return;
  }
  if (attempt_ && attempt_->fits(message)) return attempt_->start_again(std::move(message));
  if (!attempt_) return make_attempt(std::move(message));
  next_ = std::move(message);
  attempt_->stop(false, {});
}

void Agent::make_attempt(wire::StartAttempt start) {
  attempt_ = std::make_unique<Attempt>(loop_, *driver_, std::move(start), [this] {
    sweeping_ = true;
    sweep();
  });
  if (configure_.fork_server && (!server_ || server_->dead())) start_server();
  if (configure_.fork_server && server_ && !server_->ready())
    attempt_waits_ = true;
  else if (attempt_)
    begin_attempt();
}

void Agent::on(wire::StopAttempt& message) {
  if (next_ && next_->attempt == message.attempt) {
    next_.reset();
    driver_->send(wire::AttemptEnded{message.attempt});
    return;
  }
  Attempt* attempt = running(message.attempt);
  if (attempt == nullptr) return;
  attempt->stop(message.interrupt, Seconds(message.grace));
  if (attempt_waits_) {
    attempt_waits_ = false;
    attempt->abandon_unborn();
  }
}

void Agent::on(wire::StartWorker& message) {
  Attempt* attempt = running(message.attempt);
  if (attempt == nullptr || attempt_waits_) return;
  mark(message.worker);
  if (configure_.fork_server)
    attempt->restart(message.worker, *server_);
  else
    attempt->restart(message.worker, configure_);
}

void Agent::on(wire::StopWorker& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->kill(message.rank);
}

void Agent::on(wire::KeepWorkers& message) {
  Attempt* attempt = running(message.attempt);
  if (attempt == nullptr) return;
  if (attempt->keep())
    driver_->send(wire::AttemptEnded{message.attempt});
  else
    attempt->stop(false, {});
}

void Agent::on(wire::CountKept&) {
  wire::KeptWorkers kept;
  if (attempt_ && attempt_->kept()) std::tie(kept.alive, kept.lost) = attempt_->survey();
  driver_->send(kept);
}

void Agent::on(wire::DumpStacks& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->dump_stacks(Seconds(message.timeout));
}

void Agent::on(wire::ToWorker& message) {
  if (Attempt* attempt = running(message.attempt)) attempt->send(message.rank, message.message);
}

void Agent::on(wire::Shutdown&) { loop_.stop(); }

// ---------------------------------------------------------------- the fork server

void Agent::start_server() {
  ForkServer::Handlers handlers;
  handlers.ready = [this] { server_ready(); };
  handlers.started = [this](int rank, sys::Process process) {
    if (attempt_) attempt_->started(rank, std::move(process));
  };
  handlers.refused = [this](int rank, const std::string& why) {
    fail("[agent] rank " + std::to_string(rank) + " could not be forked: " + why);
    server_->forget_requests();
    if (!attempt_) return;
    attempt_->stop(false, {});
    attempt_->abandon_unborn();
  };
  handlers.exited = [this](int pid, sys::ExitStatus status) {
    if (attempt_) attempt_->exited(pid, status);
  };
  handlers.died = [this](const std::string& why) { server_died(why); };
  try {
    server_ = std::make_unique<ForkServer>(loop_, configure_, std::move(handlers));
  } catch (const EngineError& error) {
    server_died(error.what());
  }
}

void Agent::server_ready() {
  if (std::exchange(ready_is_due_, false))
    driver_->send(wire::AgentReady{wire::kVersion, ::getpid(), sys::host_name()});
  if (std::exchange(attempt_waits_, false)) begin_attempt();
}

void Agent::server_died(const std::string& why) {
  const bool was_ready = server_ && server_->ready();
  if (!was_ready)
    fail(why);
  else
    log_debug(why);
  ready_is_due_ = false;
  attempt_waits_ = false;
  if (attempt_) attempt_->server_died();
}

// ---------------------------------------------------------------- the attempt

void Agent::begin_attempt() {
  try {
    if (configure_.fork_server)
      attempt_->start(*server_);
    else
      attempt_->start(configure_);
  } catch (const EngineError& error) {
    fail(error.what());
    attempt_->stop(false, {});
    attempt_->abandon_unborn();
  }
}

std::vector<int> Agent::not_orphans() const {
  std::vector<int> result = attempt_ ? attempt_->pids() : std::vector<int>{};
  if (server_ && !server_->dead()) result.push_back(server_->pid());
  return result;
}

void Agent::child_ended() {
  sys::reap_children_except(not_orphans());
  if (sweeping_) sweep();
}

void Agent::sweep() {
  if (!sweeping_ || !attempt_) return;
  const auto mine = not_orphans();
  sys::reap_children_except(mine);
  const auto left = sys::descendants(::getpid(), mine);
  if (left.empty()) {
    sweeping_ = false;
    if (running()) driver_->send(wire::AttemptEnded{attempt_->number()});
    attempt_.reset();
    if (auto next = std::exchange(next_, std::nullopt)) make_attempt(std::move(*next));
    return;
  }
  for (const int pid : left) ::kill(pid, SIGKILL);
}

}  // namespace lockstep::agent
