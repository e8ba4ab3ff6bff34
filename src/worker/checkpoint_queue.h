#pragma once

#include <lockstep/checkpoint.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "store/part_writer.h"
#include "wire/messages.h"

namespace lockstep::worker {

/// Writes this rank's checkpoints, one at a time, in a thread of its own. At most one waits or is being written, so a
/// rank never holds more than one extra copy of its state; the copy's memory is kept for the next one. Used by one
/// thread, but any may wait; `written` is called from the writing thread, in order.
class CheckpointQueue {
 public:
  /// `storage` is the run directory; empty: nothing is written and the contents go to `written`.
  CheckpointQueue(std::string storage, std::string score_attribute,
                  std::function<void(const wire::CheckpointWritten&)> written);
  ~CheckpointQueue();

  /// What is still to be written: a dict whose arrays lie in copies_, or a checkpoint; or what was written already.
  struct Task {
    int report = 0;
    std::string partial;
    std::string data;
    std::vector<Tensor> tensors;
    std::optional<std::span<const std::byte>> objects;
    std::optional<Checkpoint> checkpoint;
    std::optional<wire::CheckpointWritten> written;
  };
  /// Copies `parts`. Call wait() before.
  Task copy(int report, std::string partial, const store::DictParts& parts);
  /// Takes a checkpoint that lies in memory (shared, not copied) or in a directory (copied to storage before this
  /// returns). Throws, and leaves nothing behind, when the directory cannot be copied.
  Task copy(int report, std::string partial, const Checkpoint& checkpoint);
  /// Hands the one that was copied last to the thread.
  void add(Task task);
  /// Rethrows what broke an earlier checkpoint.
  void check();
  /// Waits until all is written, then as check().
  void wait();
  /// Ends the thread and gives the memory back; nothing may be added later.
  void close();

 private:
  /// Bytes that are not set to zero first.
  struct Buffer {
    Buffer() = default;
    explicit Buffer(std::size_t length) : bytes(std::make_unique_for_overwrite<std::byte[]>(length)), length(length) {}
    std::byte* data() const { return bytes.get(); }
    std::size_t size() const { return length; }
    std::unique_ptr<std::byte[]> bytes;
    std::size_t length = 0;
  };
  void loop();
  wire::CheckpointWritten write_part(const Task& task) const;
  std::optional<double> score_of(const Task& task) const;

  const std::string storage_;
  const std::string score_attribute_;
  const std::function<void(const wire::CheckpointWritten&)> written_;
  Buffer copies_;  // of the task's arrays; touched by the caller only while no task is there

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Task> task_;
  bool stop_ = false;
  std::exception_ptr error_;

  std::thread thread_;
};

}  // namespace lockstep::worker
