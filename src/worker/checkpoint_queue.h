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
#include <utility>
#include <vector>

#include "store/part_writer.h"
#include "wire/messages.h"

namespace lockstep::worker {

/// Writes this rank's checkpoints, one at a time, in its own thread. At most one is waiting or being written, so a rank
/// never holds more than one extra copy of its state; the copy's memory is reused. One thread adds, any thread may
/// wait; `written` is called from the writing thread, in order.
class CheckpointQueue {
 public:
  /// `storage` is the run directory. If it is empty, nothing is written and the contents are passed to `written`.
  CheckpointQueue(std::string storage, std::string score_attribute,
                  std::function<void(const wire::CheckpointWritten&)> written);
  ~CheckpointQueue();

  /// Lockstep's own files of a checkpoint, by name. They replace files of these names in what the user gives.
  using OwnFiles = std::vector<std::pair<std::string, Bytes>>;
  /// A task: a dict whose arrays are in copies_, or a checkpoint; or one that is already written.
  struct Task {
    int report = 0;
    std::string partial;
    std::string data;
    std::vector<Tensor> tensors;
    std::optional<std::span<const std::byte>> objects;
    std::optional<Checkpoint> checkpoint;
    std::optional<wire::CheckpointWritten> written;
    OwnFiles own;
  };
  /// Copies `parts`. Call wait() before.
  Task copy(int report, std::string partial, const store::DictParts& parts, OwnFiles own);
  /// Takes a checkpoint that is in memory (shared, not copied) or in a directory (copied to storage before this
  /// returns). Throws, and leaves nothing behind, if the directory cannot be copied. Positions in it are left out: they
  /// belong to whoever saved it.
  Task copy(int report, std::string partial, const Checkpoint& checkpoint, OwnFiles own);
  /// Passes the last copy to the thread.
  void add(Task task);
  /// Rethrows the error of an earlier checkpoint.
  void check();
  /// Waits until everything is written, then calls check().
  void wait();
  /// Ends the thread and frees the memory; nothing may be added later.
  void close();

 private:
  /// A buffer that is not zeroed.
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
  Buffer copies_;  // of the task's arrays; the caller uses it only while there is no task

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Task> task_;
  bool stop_ = false;
  std::exception_ptr error_;

  std::thread thread_;
};

}  // namespace lockstep::worker
