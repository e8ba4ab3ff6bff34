#include "worker/checkpoint_queue.h"

#include <algorithm>
#include <cstring>
#include <lockstep/error.h>
#include <set>

#include "store/positions.h"
#include "store/score.h"
#include "sys/private_files.h"

namespace lockstep::worker {
namespace {

std::span<const std::byte> bytes_of(const Bytes& bytes) { return std::as_bytes(std::span(bytes)); }

/// Throws ConfigError if the user has a file of his own under the name of one of Lockstep's.
void check_positions_in(const Checkpoint& checkpoint) {
  const auto names = checkpoint.files();
  if (std::find(names.begin(), names.end(), store::kPositionsName) == names.end()) return;
  try {
    store::decode_positions(checkpoint.read(store::kPositionsName));
  } catch (const StorageError& error) {
    throw ConfigError(std::string("[checkpoint] the file name \"") + store::kPositionsName +
                      "\" is Lockstep's own; give the file another name (" + error.what() + ")");
  }
}

/// The names of its files, without those that Lockstep writes itself.
std::vector<std::string> users_files(const Checkpoint& checkpoint, const std::set<std::string>& own) {
  auto names = checkpoint.files();
  std::erase_if(names, [&](const std::string& name) { return own.contains(name); });
  return names;
}

}  // namespace

CheckpointQueue::CheckpointQueue(std::string storage, std::string score_attribute,
                                 std::function<void(const wire::CheckpointWritten&)> written)
    : storage_(std::move(storage)),
      score_attribute_(std::move(score_attribute)),
      written_(std::move(written)),
      thread_([this] { loop(); }) {}

CheckpointQueue::~CheckpointQueue() { close(); }

void CheckpointQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  copies_ = {};
}

void CheckpointQueue::check() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void CheckpointQueue::wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return task_ == nullptr; });
  }
  check();
}

void CheckpointQueue::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::make_unique<Task>(std::move(task));
  }
  changed_.notify_all();
}

CheckpointQueue::Task CheckpointQueue::copy(int report, std::string partial, const store::DictParts& parts,
                                            OwnFiles own) {
  Task task;
  task.report = report;
  task.partial = std::move(partial);
  task.data = parts.data;
  task.tensors.assign(parts.tensors.begin(), parts.tensors.end());
  task.objects = parts.objects;
  task.own = std::move(own);
  if (storage_.empty()) {
    // The message's contents are the copy.
    task.written = write_part(task);
    return task;
  }
  std::size_t size = parts.objects ? parts.objects->size() : 0;
  for (const Tensor& tensor : parts.tensors) size += tensor.bytes.size();
  // Only ever grown: from the second checkpoint on, the copy finds its pages in place.
  if (copies_.size() < size) {
    copies_ = {};
    copies_ = Buffer(size);
  }
  std::byte* to = copies_.data();
  const auto copy = [&](std::span<const std::byte> from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return std::span<const std::byte>(std::exchange(to, to + from.size()), from.size());
  };
  for (Tensor& tensor : task.tensors) tensor.bytes = copy(tensor.bytes);
  if (parts.objects) task.objects = copy(*parts.objects);
  return task;
}

CheckpointQueue::Task CheckpointQueue::copy(int report, std::string partial, const Checkpoint& checkpoint,
                                            OwnFiles own) {
  check_positions_in(checkpoint);
  Task task;
  task.report = report;
  task.partial = std::move(partial);
  task.checkpoint = checkpoint;
  task.own = std::move(own);
  if (checkpoint.path()) {
    task.written = write_part(task);
    task.checkpoint.reset();
  }
  return task;
}

void CheckpointQueue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || task_; });
    if (!task_) return;
    const Task& task = *task_;
    lock.unlock();
    std::exception_ptr error;
    try {
      written_(task.written ? *task.written : write_part(task));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    task_.reset();
    if (error && !error_) error_ = error;
    changed_.notify_all();
  }
}

wire::CheckpointWritten CheckpointQueue::write_part(const Task& task) const {
  wire::CheckpointWritten written;
  written.report = task.report;
  written.partial = task.partial;
  const store::DictParts parts{task.data, task.tensors, task.objects};
  std::set<std::string> own{store::kPositionsName};
  for (const auto& [name, bytes] : task.own) own.insert(name);
  if (storage_.empty()) {
    if (task.checkpoint)
      for (const auto& name : users_files(*task.checkpoint, own))
        written.contents.emplace_back(name, task.checkpoint->read(name));
    else
      written.contents = store::to_files(parts);
    written.contents.insert(written.contents.end(), task.own.begin(), task.own.end());
  } else {
    sys::PrivateFiles run;
    run.enter(storage_);
    store::PartWriter writer(run, std::filesystem::path(storage_) / task.partial);
    if (!task.checkpoint) {
      written.files = writer.write_dict(parts);
    } else if (const auto path = task.checkpoint->path()) {
      written.files = writer.copy_directory(*path, own);
    } else {
      std::vector<Bytes> contents;
      std::vector<store::MemoryFile> files;
      const auto names = users_files(*task.checkpoint, own);
      for (const auto& name : names) contents.push_back(task.checkpoint->read(name));
      for (std::size_t i = 0; const auto& name : names) files.push_back({name, bytes_of(contents[i++])});
      written.files = writer.write_files(files);
    }
    std::vector<store::MemoryFile> files;
    for (const auto& [name, bytes] : task.own) files.push_back({name, bytes_of(bytes)});
    for (auto& entry : writer.write_files(files)) written.files.push_back(std::move(entry));
  }
  written.score = score_of(task);
  return written;
}

std::optional<double> CheckpointQueue::score_of(const Task& task) const {
  if (score_attribute_.empty()) return std::nullopt;
  if (!task.checkpoint) return store::score_in(task.data, score_attribute_, [&] { return task.tensors; });
  try {
    return store::score_of(*task.checkpoint, score_attribute_);
  } catch (const StorageError&) {
    return std::nullopt;  // a data.json of the user's own
  }
}

}  // namespace lockstep::worker
