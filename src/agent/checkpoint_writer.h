#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/loop.h"
#include "sys/descriptor.h"
#include "wire/handover.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// Works on the checkpoints that one worker has handed over, in order, in a thread of its own: writes them to storage,
/// or only hashes those that stay in memory. Used from the loop's thread; the thread lives as long as this object.
class CheckpointWriter {
 public:
  /// A checkpoint in shared memory.
  struct Task {
    wire::CheckpointHeld held;
    std::shared_ptr<const sys::Descriptor> memory;
    bool writes = true;  ///< false: hash it
  };
  /// A checkpoint that is done, or why it is not.
  struct Outcome {
    Task task;
    wire::CheckpointWritten written;
    std::string error;
    bool dropped = false;  ///< another one took its place
  };

  /// `done` is called from the loop for each checkpoint, in order. After the first one that could not be written, later
  /// ones are not tried, so that none hides it.
  CheckpointWriter(Loop& loop, std::function<void(Outcome)> done);
  /// Gives up what is not written yet.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Takes over a checkpoint. If it comes `instead` of others, those that wait for their turn are dropped.
  void add(Task task);
  /// How many checkpoints `done` has not been called for.
  int waiting() const { return waiting_; }
  /// Rises while bytes are being written.
  std::uint64_t progress() const { return progress_; }

 private:
  void work();
  Outcome outcome_of(Task task);
  wire::CheckpointWritten write(const Task& task);
  void answer(Outcome outcome);

  Loop& loop_;
  const std::function<void(Outcome)> done_;
  int waiting_ = 0;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< gone when this object is

  std::atomic<std::uint64_t> progress_ = 0;
  std::atomic<bool> stop_ = false;
  std::string error_;  ///< of the first that failed; the thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;

  std::thread thread_;
};

}  // namespace lockstep::agent
