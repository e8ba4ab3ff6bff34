#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/checkpoint_writer.h"
#include "agent/driver_link.h"
#include "agent/loop.h"
#include "agent/text_stream.h"
#include "sys/process.h"
#include "wire/channel.h"

namespace lockstep::agent {

/// One rank's process, from before its start to its end: relays its messages and output, writes the checkpoints that it
/// hands over, and reports its exit.
class Worker {
 public:
  /// What the process gets.
  struct Ends {
    sys::Descriptor socket;  ///< frames to and from the agent
    sys::Descriptor log;     ///< for standard output and error
    sys::Descriptor stacks;  ///< where it writes its stacks on SIGUSR2, ended by a zero byte
  };

  /// `gone` is called once, when the process has ended, all its output and messages are relayed, and what it handed
  /// over is written; it must not destroy the Worker.
  Worker(Loop& loop, DriverLink& driver, int attempt, int rank, std::function<void(Worker&)> gone);
  ~Worker();

  /// Creates the connections and returns the process's ends. `first` is sent at once.
  Ends open(const Bytes& first);
  /// The process exists.
  void started(sys::Process process);
  /// The worker is kept: relays its remaining output, then nothing more until it starts again.
  void keep();
  /// The kept worker starts a new attempt with these messages.
  void begin(int attempt, std::span<const Bytes> messages);
  /// Its parent reports how it ended; nothing if the parent itself died.
  void parent_says(std::optional<sys::ExitStatus> status);
  /// The process was never started.
  void never_started() { end({0, 9}); }

  /// Queues a message for the worker.
  void send(std::span<const std::uint8_t> message);
  /// Pauses or continues relaying.
  void pause(bool paused);
  void signal(int signal);
  /// SIGKILL to the process, its group and everything that descends from it; as soon as it exists, if it does not yet.
  void kill();
  /// The driver is gone, so nobody would commit what is being written.
  void drop_checkpoints();
  /// The checkpoint of this report need not stay in memory.
  void release(int report);
  /// What of it stays in memory: the driver may not have opened the newest yet.
  using Memory = std::vector<std::shared_ptr<const sys::Descriptor>>;
  Memory take_memory();
  /// Sends WorkerStacks within `timeout`.
  void dump_stacks(Seconds timeout);

  int rank() const { return rank_; }
  int pid() const { return process_.pid; }
  /// Whether its end is not known. Its pid may not be known yet.
  bool alive() const { return !ended_; }
  /// Whether gone() has been called.
  bool gone() const { return told_; }
  sys::ExitStatus status() const { return *status_; }
  bool killed() const { return killed_; }

 private:
  /// Whether it can get signals.
  bool has_process() const { return process_.pid != 0 && !ended_; }
  void tell_started();
  bool read_messages();
  void take(wire::CheckpointHeld held);
  CheckpointWriter& writer(std::unique_ptr<CheckpointWriter>& which);
  void done(CheckpointWriter::Outcome outcome);
  void tell_of_loss(const std::string& why);
  void tell_driver(const CheckpointWriter::Outcome& outcome);
  void free_memory(int report);
  int unwritten() const;
  void tell_of_writing();
  bool read_log();
  void read_stacks();
  void write();
  void moved();
  void process_ended();
  void end(sys::ExitStatus status);
  void tell();
  void finish_stacks(const char* remark);

  Loop& loop_;
  DriverLink& driver_;
  int attempt_;
  const int rank_;
  std::function<void(Worker&)> gone_;

  sys::Process process_;
  sys::Descriptor socket_, log_, stacks_;
  Watch process_watch_, socket_watch_, log_watch_, stacks_watch_;
  wire::FrameReader reader_;
  std::vector<sys::Descriptor> descriptors_;           ///< that came with its messages, for those that are not read yet
  std::unique_ptr<CheckpointWriter> writer_, hasher_;  ///< once it has handed over a checkpoint
  /// A checkpoint that stays in memory.
  struct Kept {
    std::shared_ptr<const sys::Descriptor> memory;
    bool is_written = true;  ///< or need not be
    bool is_released = false;
  };
  std::string unheard_;                   ///< why a checkpoint is lost, as the worker was told
  std::map<int, Kept> kept_checkpoints_;  ///< by report
  Timer writing_told_;                    ///< while its checkpoints are written and it has ended
  bool drops_checkpoints_ = false;
  std::uint64_t written_ = 0;  ///< the writer's progress when the driver was last told
  TextStream text_;
  Bytes outgoing_;
  std::size_t sent_ = 0;
  bool writing_ = false;  ///< waits until the socket takes more
  Instant told_alive_{};

  std::string stacks_text_;
  bool dumping_ = false;
  Timer stacks_quiet_, stacks_deadline_;

  bool killed_ = false;
  bool ended_ = false;  ///< the process has ended; its status may not have arrived
  bool parent_died_ = false;
  bool told_ = false;
  bool kept_ = false;
  std::optional<sys::ExitStatus> status_;
};

}  // namespace lockstep::agent
