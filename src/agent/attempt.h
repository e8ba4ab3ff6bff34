#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/driver_link.h"
#include "agent/fork_server.h"
#include "agent/loop.h"
#include "agent/memory_kills.h"
#include "agent/worker.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// The workers of one attempt on this node, and of the next attempt if they are kept. They share one fork server, which
/// lives as long as they do.
class Attempt : private ForkServer::Client {
 public:
  struct Handlers {
    std::function<void()> worker_gone;  ///< a worker ended; its children are the agent's now
    std::function<void()> all_gone;     ///< all workers ended; called once, from the loop
  };
  Attempt(Loop& loop, DriverLink& driver, wire::StartAttempt start, Handlers handlers);
  ~Attempt();

  int number() const { return start_.attempt; }
  /// Asks the fork server for every worker. If that fails, tells the driver and ends the attempt.
  void start(ForkServer& server);
  /// Called instead of start() if there is no fork server; ends the attempt.
  void abandon();
  /// Restarts one rank. Ignored unless its process has ended and another worker is still alive.
  void restart(const wire::WorkerSpec& spec);
  /// Kills one rank.
  void kill(int rank);

  /// All functions have returned; keeps the workers. Returns false if one of them has ended.
  bool keep();
  bool kept() const { return kept_; }
  /// Whether the kept workers can run `start`: they have the same ranks and all are alive.
  bool fits(const wire::StartAttempt& start) const;
  /// How many workers are alive, and a text that says how the others ended.
  std::pair<int, std::string> survey() const;
  /// Starts a new attempt with the kept workers.
  void start_again(wire::StartAttempt start);

  void stop(bool interrupt, Seconds grace);
  /// The driver is gone: gives up the checkpoints that are being written.
  void drop_checkpoints();
  /// This rank's checkpoint of this report need not stay in memory.
  void release(int rank, int report);
  /// What stays in memory when the attempt is over.
  Worker::Memory take_memory();
  void dump_stacks(Seconds timeout);
  /// Relays to one rank, or to all (-1).
  void send(int rank, std::span<const std::uint8_t> message);
  void pause(bool paused);
  /// When the first of its workers ended.
  Instant first_end() const { return *first_end_; }

 private:
  void worker_started(int rank, sys::Process process) override;
  void worker_refused(int rank, const std::string& why) override;
  void worker_exited(int pid, sys::ExitStatus status) override;
  void server_died(const std::string& why, bool came_up) override;

  Worker* find(int rank);
  std::unique_ptr<Worker> make_worker(int rank);
  /// Throws EngineError.
  void ask_for(Worker& worker, const Value& begin);
  bool all_gone() const;
  void kill();
  void gone(Worker& worker);

  Loop& loop_;
  DriverLink& driver_;
  wire::StartAttempt start_;
  Handlers handlers_;
  ForkServer* server_ = nullptr;  ///< null before start(), and after the server has died
  sys::Descriptor payload_;
  MemoryKills memory_kills_;
  std::uint64_t memory_kills_before_;
  Timer grace_;
  bool stopped_ = false;  ///< by StopAttempt
  bool kept_ = false;     ///< no attempt runs; nothing is sent to the driver
  std::optional<Instant> first_end_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Whether the kernel's OOM killer ended a worker: the signal is a SIGKILL that is not ours, and a kill was counted.
bool killed_for_memory(sys::ExitStatus status, bool killed_by_us, std::uint64_t kills_before, std::uint64_t kills_now);

}  // namespace lockstep::agent
