#include "agent/agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "sys/agent_mark.h"
#include "sys/process.h"

namespace lockstep::agent {
namespace {

/// After this long the agent ends, even if processes that it killed still exist.
constexpr auto kLastWait = 3s;

/// Kills all descendants of this process until none is left. Orphans become our children, because we are their
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

Agent::Agent(Options options) : servers_(loop_) {
  if (const char* id = std::getenv(sys::kAgentId)) id_ = id;
  sys::become_subreaper();
  loop_.on_signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP},
                   [this](int signal) { signal == SIGCHLD ? child_ended() : loop_.stop(); });
  control_.emplace(loop_, std::move(options.control),
                   ControlLink::Handlers{.run = [this](sys::Descriptor socket) { add_run(std::move(socket)); },
                                         .closed = [this] { loop_.stop(); }});
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

void Agent::add_run(sys::Descriptor socket) {
  Run::Handlers handlers;
  handlers.worker_gone = [this] { sweep(); };
  handlers.orphans_left = [this](Instant since) { return orphans_.left_since(since); };
  // Posted, because the run itself makes this call.
  handlers.over = [this](Run& run) {
    loop_.post([this, &run] { std::erase_if(runs_, [&](const auto& each) { return each.get() == &run; }); });
  };
  runs_.push_back(std::make_unique<Run>(loop_, servers_, std::move(socket), id_, std::move(handlers)));
}

void Agent::child_ended() {
  sweep();
  for (const auto& run : runs_) run->check_end();
}

}  // namespace lockstep::agent
