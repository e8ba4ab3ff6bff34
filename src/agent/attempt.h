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

/// The workers of one attempt on this node; when they are kept, of the next one too.
class Attempt {
 public:
  /// `ended` is called once, from the loop, when every worker is gone.
  Attempt(Loop& loop, DriverLink& driver, wire::StartAttempt start, std::function<void()> ended);

  int number() const { return start_.attempt; }
  /// Asks the fork server for every worker.
  void start(ForkServer& server);
  /// Executes the program once per worker. Throws EngineError; workers may run then, and stop() is due.
  void start(const wire::Configure& configure);

  /// Starts one rank again, alone. Ignored unless its process is gone and another worker is not.
  void restart(const wire::WorkerSpec& spec, ForkServer& server);
  void restart(const wire::WorkerSpec& spec, const wire::Configure& configure);
  /// Kills one rank.
  void kill(int rank);

  /// The functions are over and the workers stay. Whether they do: one that is gone cannot.
  bool keep();
  bool kept() const { return kept_; }
  /// Whether these kept workers can be those of `start`: the same ranks, all alive.
  bool fits(const wire::StartAttempt& start) const;
  /// How many live, and how the others ended, in words.
  std::pair<int, std::string> survey() const;
  /// The kept workers begin a new attempt.
  void start_again(wire::StartAttempt start);

  // What the fork server tells.
  void started(int rank, sys::Process process);
  void exited(int pid, sys::ExitStatus status);
  void server_died();
  /// The workers that have no process never will.
  void abandon_unborn();

  void stop(bool interrupt, Seconds grace);
  void dump_stacks(Seconds timeout);
  /// Relays to one rank, or to all (-1).
  void send(int rank, std::span<const std::uint8_t> message);
  void pause(bool paused);
  std::vector<int> pids() const;

 private:
  Worker* find(int rank);
  std::unique_ptr<Worker> make_worker(int rank);
  std::vector<Worker::Ends> open();
  /// A new worker in the place of the one that is gone; nothing when there is no such place.
  Worker* renew(int rank);
  bool all_gone() const;
  void execute(Worker& worker, const wire::Configure& configure, const Worker::Ends& ends,
               std::map<std::string, std::string> env);
  void kill();
  void gone(Worker& worker);

  Loop& loop_;
  DriverLink& driver_;
  wire::StartAttempt start_;
  std::function<void()> ended_;
  sys::Descriptor payload_;
  MemoryKills memory_kills_;
  std::uint64_t memory_kills_before_;
  Timer grace_;
  bool stopped_ = false;  ///< by StopAttempt
  bool killing_ = false;
  bool kept_ = false;  ///< no attempt runs; the driver hears nothing
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Whether a worker's end is the work of the kernel's OOM killer: a SIGKILL that is not ours, and a kill was counted.
bool killed_for_memory(sys::ExitStatus status, bool killed_by_us, std::uint64_t kills_before, std::uint64_t kills_now);

}  // namespace lockstep::agent
