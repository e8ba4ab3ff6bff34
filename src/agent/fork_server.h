#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "agent/loop.h"
#include "agent/worker.h"
#include "sys/process.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// The agent's side of a warm process that forks workers (python/lockstep/_fork_server.py). Packets are words:
///
///     fork <rank>                     agent to fork server, with [socket, payload, log, stacks]
///     ready                           fork server to agent: the modules are imported
///     failed\n<why>                   ... they could not be
///     started <rank> <pid>            with [pidfd]
///     refused <rank> <why>            the fork failed
///     exited <pid> <code> <signal>
///
/// The socket's number stands in LOCKSTEP_FORK_SERVER_FD. When the agent closes it, the fork server kills its workers
/// and ends.
class ForkServer {
 public:
  struct Handlers {
    std::function<void()> ready;
    std::function<void(int rank, sys::Process)> started;
    std::function<void(int rank, const std::string& why)> refused;
    std::function<void(int pid, sys::ExitStatus)> exited;
    /// The last call: it died, or could not import its modules. The workers that it forked are dying, and are ours to
    /// reap.
    std::function<void(const std::string& why)> died;
  };

  /// Starts it. Throws EngineError when the program cannot be executed.
  ForkServer(Loop& loop, const wire::Configure& configure, Handlers handlers);
  /// Kills it, if it lives.
  ~ForkServer();

  bool ready() const { return ready_; }
  bool dead() const { return dead_; }
  int pid() const { return process_.pid; }
  /// Forks a worker: `started` or `refused` follows.
  void fork(int rank, const Worker::Ends& ends, int payload);
  /// Forgets what has been asked for and not begun.
  void forget_requests();

 private:
  struct Request {
    int rank;
    std::vector<sys::Descriptor> fds;
  };
  bool read();
  void handle(const std::string& packet, std::vector<sys::Descriptor> fds);
  void send_requests();
  void ended();

  Loop& loop_;
  Handlers handlers_;
  sys::Descriptor socket_;
  sys::Process process_;
  Watch socket_watch_, process_watch_;
  std::deque<Request> requests_;
  int outstanding_ = 0;
  bool ready_ = false;
  bool dead_ = false;
  std::string why_;
};

}  // namespace lockstep::agent
