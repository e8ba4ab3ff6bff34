#include "worker/worker_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "base/failure.h"
#include "base/log.h"
#include "sys/node.h"
#include "wire/codec.h"

namespace lockstep::worker {

WorkerSession::WorkerSession(int socket) : channel_(sys::Descriptor(socket)) {
  const auto frame = channel_.receive();
  if (!frame) throw EngineError("[worker] the agent closed the connection before the first message");
  auto message = wire::decode<wire::DriverToWorker>(*frame);
  auto* begin = std::get_if<wire::Begin>(&message);
  if (begin == nullptr) throw EngineError("[worker] the first message is not 'begin'");
  begin_ = std::move(*begin);
  outbox_.emplace(
      channel_, Seconds(begin_.heartbeat_interval), [this] { return wire::encode(wire::Heartbeat{progress_}); },
      [this] { lost(); });
  checkpoints_.emplace(begin_.storage, begin_.score_attribute, [this](const wire::CheckpointWritten& written) {
    if (begin_.storage.empty()) {
      const std::lock_guard lock(mutex_);
      in_memory_ = Checkpoint::from_files(written.contents);
    }
    outbox_->add(wire::encode(written));
    ++progress_;
  });
  receiver_ = std::thread([this] { receive(); });
}

WorkerSession::~WorkerSession() {
  ended_ = true;
  checkpoints_.reset();
  outbox_.reset();
  ::shutdown(channel_.fd(), SHUT_RDWR);
  receiver_.join();
}

void WorkerSession::start() {
  last_report_ = now();
  outbox_->add(wire::encode(wire::WorkerReady{getpid(), sys::host_name(), sys::node_ip()}));
}

void WorkerSession::finish(Bytes value) {
  checkpoints_->wait();
  outbox_->add(wire::encode(wire::WorkerFinished{std::move(value)}));
  outbox_->flush();
  ended_ = true;
}

void WorkerSession::fail(Failure failure) {
  // What was reported before the failure is worth keeping; a broken disk must not hide the failure itself.
  try {
    checkpoints_->wait();
  } catch (const Error& error) {
    log_warning(error.what());
  }
  failure.node = sys::host_name();
  outbox_->add(wire::encode(wire::WorkerFailed{to_value(failure, true)}));
  outbox_->flush();
  ended_ = true;
}

int WorkerSession::add_report(const Value& metrics, bool with_checkpoint) {
  const Instant time = now();
  wire::Report report;
  report.index = reports_++;
  report.timestamp = unix_seconds(wall_now());
  report.time_this_iter = Seconds(time - std::exchange(last_report_, time)).count();
  report.has_checkpoint = with_checkpoint;
  report.metrics =
      wire::encode_value(metrics.is_null() ? Value::object() : metrics);  // report({}, ...) in C++ gives null
  const int index = report.index;
  outbox_->add(std::move(report));
  ++progress_;
  return index;
}

std::string WorkerSession::partial_name(int report) {
  char name[80];
  if (begin_.keep_all_ranks)
    std::snprintf(name, sizeof name, "checkpoint_%06d_report_%06d.partial", begin_.first_seq, report);
  else
    std::snprintf(name, sizeof name, "checkpoint_%06d.partial", begin_.first_seq + checkpoints_made_);
  ++checkpoints_made_;
  return name;
}

void WorkerSession::report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) {
  checkpoints_->check();
  if (!metrics.is_object() && !metrics.is_null())
    throw ConfigError("[report] metrics must be a dict of names and plain values");
  const bool keeps = checkpoint && keeps_checkpoints();
  if (!keeps) {
    const int index = add_report(metrics, false);
    if (checkpoint) last_checkpoint_report_ = index;
    return;
  }
  checkpoints_->wait_for_room();
  const int index = add_report(metrics, true);
  last_checkpoint_report_ = index;
  checkpoints_->add(index, partial_name(index), *checkpoint);
}

void WorkerSession::report_dict(const Value& metrics, const store::DictParts& parts) {
  checkpoints_->check();
  checkpoints_->wait_for_room();
  const int index = add_report(metrics, true);
  last_checkpoint_report_ = index;
  checkpoints_->add(index, partial_name(index), parts);
}

std::optional<Checkpoint> WorkerSession::checkpoint() {
  if (last_checkpoint_report_ >= 0) {
    std::unique_lock lock(mutex_);
    if (keeps_checkpoints())
      changed_.wait(lock, [&] { return ended_ || (committed_ && committed_->report >= last_checkpoint_report_); });
    if (committed_ && !committed_->path.empty()) return Checkpoint::from_directory(committed_->path);
    if (in_memory_) return in_memory_;
  }
  if (!begin_.checkpoint.empty()) return Checkpoint::from_directory(begin_.checkpoint);
  if (!begin_.checkpoint_files.empty()) return Checkpoint::from_files(begin_.checkpoint_files);
  return std::nullopt;
}

Bytes WorkerSession::meet(Bytes value, Seconds timeout) {
  if (begin_.world_size == 1) return value;
  std::unique_lock lock(mutex_);
  const int meeting = meetings_++;
  lock.unlock();
  outbox_->add(
      wire::encode(wire::MeetingEntered{meeting, timeout.count(), begin_.rank == 0 ? std::move(value) : Bytes{}}));
  ++progress_;
  lock.lock();
  changed_.wait(lock, [&] { return ended_ || meetings_done_.contains(meeting); });
  auto done = meetings_done_.extract(meeting);
  if (done.empty()) throw EngineError("[session] the agent is gone");
  ++progress_;
  if (!done.mapped().error.empty()) throw TimeoutError(done.mapped().error);
  return std::move(done.mapped().value);
}

void WorkerSession::barrier(Seconds timeout) { meet({}, timeout); }

Bytes WorkerSession::broadcast_from_rank_zero(Bytes bytes, Seconds timeout) { return meet(std::move(bytes), timeout); }

void WorkerSession::receive() {
  while (auto frame = channel_.receive()) {
    auto message = wire::decode<wire::DriverToWorker>(*frame);
    const std::lock_guard lock(mutex_);
    if (auto* done = std::get_if<wire::MeetingDone>(&message)) meetings_done_[done->meeting] = std::move(*done);
    if (auto* committed = std::get_if<wire::CheckpointCommitted>(&message)) committed_ = std::move(*committed);
    changed_.notify_all();
  }
  lost();
}

void WorkerSession::lost() {
  if (ended_.exchange(true)) return;
  // Nobody is left to report to. The worker leads its process group: its children go with it.
  kill(0, SIGKILL);
}

}  // namespace lockstep::worker
