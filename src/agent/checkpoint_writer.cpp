#include "agent/checkpoint_writer.h"

#include <lockstep/error.h>

#include <csignal>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "store/hash.h"
#include "store/part_writer.h"
#include "store/tree.h"
#include "sys/private_files.h"
#include "sys/shared_memory.h"

namespace lockstep::agent {
namespace {

/// Counts what is written, and stops when nobody needs it any more.
class WatchedFiles final : public sys::PrivateFiles {
 public:
  WatchedFiles(std::atomic<std::uint64_t>& progress, const std::atomic<bool>& stop)
      : progress_(progress), stop_(stop) {}

  std::size_t write(sys::OpenFile& file, std::span<const std::byte> bytes) override {
    if (stop_) throw StorageError("[agent] the checkpoint is not needed any more");
    const std::size_t size = PrivateFiles::write(file, bytes);
    progress_ += size;
    return size;
  }
  void sync(sys::OpenFile& file) override {
    PrivateFiles::sync(file);
    ++progress_;
  }

 private:
  std::atomic<std::uint64_t>& progress_;
  const std::atomic<bool>& stop_;
};

/// The end of the last file. Throws StorageError if a range is not one.
std::uint64_t end_of(const std::vector<wire::HeldFile>& files) {
  std::int64_t end = 0;
  for (const wire::HeldFile& file : files) {
    if (file.offset < 0 || file.size < 0 || file.offset > std::numeric_limits<std::int64_t>::max() - file.size)
      throw StorageError("[agent] the worker handed over a checkpoint with impossible sizes");
    end = std::max(end, file.offset + file.size);
  }
  return static_cast<std::uint64_t>(end);
}

}  // namespace

CheckpointWriter::CheckpointWriter(Loop& loop, std::function<void(Outcome)> done)
    : loop_(loop), done_(std::move(done)) {}

CheckpointWriter::~CheckpointWriter() {
  stop_ = true;
  {
    const std::lock_guard lock(mutex_);
    tasks_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::add(Task task) {
  ++waiting_;
  std::vector<Task> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (task.held.instead) {
      dropped.assign(std::move_iterator(tasks_.begin()), std::move_iterator(tasks_.end()));
      tasks_.clear();
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  for (Task& each : dropped) {
    Outcome outcome;
    outcome.written.report = each.held.report;
    outcome.task = std::move(each);
    outcome.dropped = true;
    answer(std::move(outcome));
  }
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    error_ = std::string("[agent] no thread can be started to write the checkpoint: ") + error.what();
    const std::lock_guard lock(mutex_);
    answer(outcome_of(std::move(tasks_.front())));
    tasks_.pop_front();
  }
}

void CheckpointWriter::answer(Outcome outcome) {
  auto shared = std::make_shared<Outcome>(std::move(outcome));
  loop_.post([this, shared, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    --waiting_;
    done_(std::move(*shared));
  });
}

void CheckpointWriter::work() {
  // Signals are the loop's.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    answer(outcome_of(std::move(task)));
  }
}

CheckpointWriter::Outcome CheckpointWriter::outcome_of(Task task) {
  Outcome outcome;
  outcome.written.report = task.held.report;
  try {
    if (error_.empty()) outcome.written = write(task);
  } catch (const std::exception& error) {
    error_ = error.what();
  }
  outcome.error = error_;
  outcome.task = std::move(task);
  return outcome;
}

wire::CheckpointWritten CheckpointWriter::write(const Task& task) {
  const wire::CheckpointHeld& held = task.held;
  if (!task.memory || !*task.memory)
    throw StorageError(
        "[agent] the checkpoint's memory did not arrive: too many files are open; raise the limit "
        "(ulimit -n)");
  const sys::Mapping memory = sys::map_shared(task.memory->get(), end_of(held.files));
  wire::CheckpointWritten written;
  written.report = held.report;
  written.score = held.score;
  std::vector<store::MemoryFile> files;
  for (const wire::HeldFile& file : held.files) {
    const auto bytes =
        memory.bytes().subspan(static_cast<std::size_t>(file.offset), static_cast<std::size_t>(file.size));
    files.push_back({file.name, bytes});
    if (task.writes) continue;
    if (const auto problem = store::file_name_problem(file.name); !problem.empty())
      throw StorageError("[checkpoint] the file name " + in_quotes(file.name) + " " + problem);
    written.files.push_back({file.name, file.size, store::hash_of(bytes)});
    written.offsets.push_back(file.offset);
  }
  if (!task.writes) return written;
  WatchedFiles storage(progress_, stop_);
  if (held.trusted) storage.trust();
  storage.enter(held.storage);
  store::PartWriter writer(storage, std::filesystem::path(held.storage) / held.partial);
  written.partial = held.partial;
  written.files = writer.write_files(files);
  return written;
}

}  // namespace lockstep::agent
