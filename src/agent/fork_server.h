#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/loop.h"
#include "agent/worker.h"
#include "sys/process.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// The agent's side of a warm process that forks workers (python/lockstep/_fork_server.py, src/worker/zygote.h).
/// Packets are words:
///
///     fork <ticket>                   agent to fork server, with [socket, payload, log, stacks]
///     ready\n<name>=<version>...      fork server to agent: the modules are imported; versions, maybe none
///     failed\n<why>                   ... they could not be
///     started <ticket> <pid>          with [pidfd]
///     refused <ticket> <why>          the fork failed
///     exited <pid> <code> <signal>
///
/// LOCKSTEP_FORK_SERVER_FD holds the socket's number. When the agent closes it, the fork server kills its workers and
/// ends. One server serves the workers of many runs.
class ForkServer {
 public:
  /// Waits for the server or asks it for workers. Called from the loop, never from inside one of its own calls.
  class Client {
   public:
    virtual void server_ready() {}
    virtual void worker_started(int /*rank*/, sys::Process /*process*/) {}
    virtual void worker_refused(int /*rank*/, const std::string& /*why*/) {}
    virtual void worker_exited(int /*pid*/, sys::ExitStatus /*status*/) {}
    /// The last call: the server ended, or could not import its modules (`came_up` is false). The workers that it
    /// forked are dying, and the agent must reap them.
    virtual void server_died(const std::string& why, bool came_up) = 0;

   protected:
    ~Client() = default;
  };

  /// Starts the server. `idle` is called when its last client has left and when it has died. Throws EngineError if the
  /// program cannot be executed.
  ForkServer(Loop& loop, const wire::Configure& configure, std::function<void()> idle);
  /// Kills the server if it is alive.
  ~ForkServer();

  bool ready() const { return ready_; }
  bool dead() const { return dead_; }
  bool idle() const { return clients_.empty(); }
  int pid() const { return process_.pid; }
  /// Versions of what it has imported, by name; known when it is ready.
  const std::map<std::string, std::string>& versions() const { return versions_; }

  void join(Client& client);
  /// The client gets no more calls. A worker that is started for it later is killed at once.
  void leave(Client& client);

  /// Forks a worker once the server is ready; worker_started or worker_refused follows. Throws EngineError if there are
  /// no descriptors left for it.
  void fork(Client& client, int rank, const Worker::Ends& ends, int payload);
  /// Drops the client's requests that have not been sent yet, and returns their ranks.
  std::vector<int> forget_requests(const Client& client);

 private:
  struct Request {
    Client* client;
    int rank;
    std::vector<sys::Descriptor> fds;
  };
  struct Ticket {
    Client* client;  ///< null: it has left
    int rank;
  };
  bool read();
  void handle(const std::string& packet, std::vector<sys::Descriptor> fds);
  void take_ready(const std::string& packet);
  void take_started(int ticket, int pid, sys::Descriptor pidfd);
  void take_refused(int ticket, const std::string& why);
  void take_exited(int pid, sys::ExitStatus status);
  std::optional<Ticket> answered(int ticket);
  void send_requests();
  void refuse_unsent();
  void ended();

  Loop& loop_;
  std::function<void()> idle_;
  sys::Descriptor socket_;
  sys::Process process_;
  Watch socket_watch_, process_watch_;
  std::vector<Client*> clients_;
  std::deque<Request> requests_;    ///< not sent
  std::map<int, Ticket> tickets_;   ///< sent and not answered
  std::map<int, Client*> workers_;  ///< by pid: live workers of clients that have not left
  std::deque<Ticket> unsent_;       ///< could not be sent
  std::string why_unsent_;
  Timer refusals_;
  int next_ticket_ = 0;
  std::map<std::string, std::string> versions_;
  bool ready_ = false;
  bool dead_ = false;
  std::string why_;
};

}  // namespace lockstep::agent
