#include "agent/agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "sys/agent_mark.h"
#include "sys/node.h"
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
  if (const char* id = std::getenv(sys::kAgentId)) place_.agent_id = id;
  place_.name = sys::host_name();
  sys::become_subreaper();
  loop_.on_signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}, [this](int signal) {
    if (signal == SIGCHLD)
      child_ended();
    else if (!is_notice(signal))
      loop_.stop();
  });
  if (options.join)
    join(*std::move(options.join));
  else
    control_.emplace(loop_, std::move(options.control),
                     ControlLink::Handlers{.run = [this](sys::Descriptor socket) { add_run(std::move(socket)); },
                                           .listen =
                                               [this](sys::Descriptor engine) {
                                                 if (head_) return;
                                                 place_.relay = &head_.emplace(loop_, std::move(engine));
                                               },
                                           .closed = [this] { loop_.stop(); }});
  if (options.input) {
    input_ = std::move(options.input);
    input_watch_ = Watch(loop_, input_.get());
    input_watch_.on_readable([this] { read_input(); });
  }
  if (options.parent == 0) return;
  parent_ = sys::open_pidfd(options.parent);
  if (!parent_ || ::getppid() != options.parent) {
    loop_.post([this] { loop_.stop(); });
    return;
  }
  parent_watch_ = Watch(loop_, parent_.get());
  parent_watch_.on_readable([this] { loop_.stop(); });
}

void Agent::join(Joined::Options options) {
  place_.name = options.hello.name;
  Joined::Handlers handlers;
  handlers.welcome = [this](int node) { place_.node = node; };
  handlers.run = [this](sys::Descriptor socket) { add_run(std::move(socket)); };
  const auto lease = std::make_shared<Instant>();
  place_.lease = lease;
  handlers.lease = [this, lease](Instant until) {
    *lease = until;
    for (const auto& run : runs_) run->renew_lease();
  };
  handlers.over = [this](const std::string& why) {
    if (joined_->was_welcome())
      log_info(why);
    else
      why_not_joined_ = why;
    loop_.stop();
  };
  joined_.emplace(loop_, std::move(options), std::move(handlers));
}

void Agent::run() {
  loop_.run();
  kill_everything();
  if (!why_not_joined_.empty()) throw EngineError("[agent] " + why_not_joined_);
}

void Agent::add_run(sys::Descriptor socket) {
  Run::Handlers handlers;
  handlers.worker_gone = [this] { sweep(); };
  handlers.orphans_left = [this](Instant since) { return orphans_.left_since(since); };
  // Posted, because the run itself makes this call.
  handlers.over = [this](Run& run) {
    loop_.post([this, &run] { std::erase_if(runs_, [&](const auto& each) { return each.get() == &run; }); });
  };
  runs_.push_back(std::make_unique<Run>(loop_, servers_, std::move(socket), place_, std::move(handlers)));
}

/// Whoever started us has ended, or the connection to it.
void Agent::read_input() {
  std::array<char, 256> dropped;
  const ssize_t size = ::read(input_.get(), dropped.data(), dropped.size());
  if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) loop_.stop();
}

/// SIGUSR1 tells that the node will be taken away; on other nodes than the driver's the first SIGTERM does too. The
/// driver ends the run.
bool Agent::is_notice(int signal) {
  const bool is_first = !std::exchange(noticed_, true);
  const bool is_one = signal == SIGUSR1 || (signal == SIGTERM && place_.node != 0 && !runs_.empty() && is_first);
  if (is_one)
    for (const auto& run : runs_) run->tell_preempted(signal);
  return is_one;
}

void Agent::child_ended() {
  sweep();
  for (const auto& run : runs_) run->check_end();
}

}  // namespace lockstep::agent
