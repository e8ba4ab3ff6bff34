#include "agent/worker.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "sys/sockets.h"
#include "wire/codec.h"
#include "wire/handover.h"

namespace lockstep::agent {
namespace {

constexpr std::size_t kMessageRead = std::size_t{256} << 10;
constexpr std::size_t kLogRead = std::size_t{64} << 10;
constexpr std::size_t kMaxStacks = std::size_t{1} << 20;
/// Read at most this much at once, about what a pipe or socket holds; endless output must not block the loop.
constexpr int kMostReads = 64;
/// Stacks without a final zero byte count as complete after this long without data.
constexpr Seconds kStacksQuiet{0.2};

/// How often the driver is told that a dead worker's checkpoints are being written.
constexpr Seconds kWritingTold{1.0};

std::array<std::uint8_t, kMessageRead> buffer;

std::string describe(int pid) {
  const auto status = sys::process_status(pid);
  if (!status) return "pid " + std::to_string(pid) + ", gone";
  std::string text = "pid " + std::to_string(pid) + ", state " + status->state;
  switch (status->state) {
    case 'R':
      text += " (running)";
      break;
    case 'S':
      text += " (sleeping)";
      break;
    case 'D':
      text += " (waiting for a device, cannot be interrupted)";
      break;
    case 'T':
      text += " (stopped by a signal)";
      break;
    case 't':
      text += " (stopped by a debugger)";
      break;
    case 'Z':
      text += " (ended)";
      break;
    default:
      break;
  }
  if (!status->wait_channel.empty()) text += ", waits in " + status->wait_channel;
  return text + "\n";
}

}  // namespace

Worker::Worker(Loop& loop, DriverLink& driver, int attempt, int rank, std::function<void(Worker&)> gone)
    : loop_(loop),
      driver_(driver),
      attempt_(attempt),
      rank_(rank),
      gone_(std::move(gone)),
      writing_told_(loop),
      stacks_quiet_(loop),
      stacks_deadline_(loop) {}

Worker::~Worker() = default;

Worker::Ends Worker::open(const Bytes& first) {
  Ends ends;
  std::tie(socket_, ends.socket) = sys::socket_pair();
  std::tie(log_, ends.log) = sys::pipe_pair();
  std::tie(stacks_, ends.stacks) = sys::pipe_pair();
  socket_watch_ = Watch(loop_, socket_.get());
  log_watch_ = Watch(loop_, log_.get());
  stacks_watch_ = Watch(loop_, stacks_.get());
  socket_watch_.on_readable([this] { read_messages(); });
  log_watch_.on_readable([this] { read_log(); });
  stacks_watch_.on_readable([this] { read_stacks(); });
  for (const auto* fd : {&socket_, &log_, &stacks_}) sys::set_nonblocking(fd->get(), true);
  if (driver_.full()) pause(true);
  send(first);
  return ends;
}

void Worker::started(sys::Process process) {
  process_ = std::move(process);
  tell_started();
  process_watch_ = Watch(loop_, process_.pidfd.get());
  process_watch_.on_readable([this] { process_ended(); });
  if (killed_) kill();  // it was to end before its pid was known
}

/// A worker may have run a function, and be kept, before the fork server has told its pid.
void Worker::tell_started() {
  if (process_.pid != 0 && !kept_) driver_.send(wire::WorkerStarted{attempt_, rank_, process_.pid});
}

// ---------------------------------------------------------------- what it says

/// Returns whether data was read; false at the end and if there is none yet.
bool Worker::read_messages() {
  const ssize_t size = sys::receive_some(socket_.get(), buffer, descriptors_, MSG_DONTWAIT);
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    socket_watch_.pause();
    return false;
  }
  try {
    reader_.feed(std::span(buffer).first(static_cast<std::size_t>(size)));
    bool whole = false;
    for (; const auto frame = reader_.next_view(); whole = true) {
      if (wire::holds<wire::CheckpointHeld>(*frame))
        take(wire::decode_one<wire::CheckpointHeld>(*frame));
      else
        driver_.relay(attempt_, rank_, *frame);
    }
    if (!whole) moved();
  } catch (const wire::WireError& error) {
    log_error("rank " + std::to_string(rank_) + " is killed: " + error.what());
    socket_watch_.pause();
    kill();
    return false;
  }
  return true;
}

void Worker::take(wire::CheckpointHeld held) {
  auto memory = std::make_shared<sys::Descriptor>();
  if (!descriptors_.empty()) {
    *memory = std::move(descriptors_.front());
    descriptors_.erase(descriptors_.begin());
  }
  if (drops_checkpoints_) return;
  if (!held.keep) return writer(writer_).add({std::move(held), std::move(memory), true});
  kept_checkpoints_[held.report] = {memory, !held.persist, false};
  writer(hasher_).add({std::move(held), std::move(memory), false});
}

CheckpointWriter& Worker::writer(std::unique_ptr<CheckpointWriter>& which) {
  if (!which) which = std::make_unique<CheckpointWriter>(loop_, [this](auto outcome) { done(std::move(outcome)); });
  return *which;
}

int Worker::unwritten() const { return (writer_ ? writer_->waiting() : 0) + (hasher_ ? hasher_->waiting() : 0); }

/// A checkpoint of this rank is written or hashed, or could not be.
void Worker::done(CheckpointWriter::Outcome outcome) {
  tell_driver(outcome);
  CheckpointWriter::Task& task = outcome.task;
  const int report = task.held.report;
  const bool stays = task.held.keep && outcome.error.empty();
  if (!ended_) unheard_ = outcome.error.empty() ? unheard_ : outcome.error;
  if (!ended_ && !(stays && task.writes)) send(wire::encode(wire::CheckpointStored{report, outcome.error, !stays}));
  if (!stays) {
    kept_checkpoints_.erase(report);
  } else if (task.writes) {
    kept_checkpoints_[report].is_written = true;
    free_memory(report);
  } else if (task.held.persist) {
    task.writes = true;
    writer(writer_).add(std::move(task));
  }
  tell();
}

void Worker::tell_driver(const CheckpointWriter::Outcome& outcome) {
  wire::CheckpointWritten written = outcome.written;
  written.dropped = outcome.dropped;
  if (!outcome.error.empty()) {
    if (ended_) tell_of_loss(outcome.error);  // nobody else is left to say so
    return;
  }
  if (outcome.task.held.keep && outcome.task.writes) written.persists = true;
  if (outcome.task.held.keep && !outcome.task.writes)
    written.memory = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(outcome.task.memory->get());
  driver_.relay(attempt_, rank_, wire::encode(written));
}

void Worker::tell_of_loss(const std::string& why) {
  driver_.send(wire::LogText{attempt_, rank_, "lockstep: a checkpoint is lost: " + why + "\n"});
}

void Worker::release(int report) {
  const auto found = kept_checkpoints_.find(report);
  if (found == kept_checkpoints_.end()) return;
  found->second.is_released = true;
  free_memory(report);
}

/// Lets the worker use the memory again, if nobody needs its contents.
void Worker::free_memory(int report) {
  const auto found = kept_checkpoints_.find(report);
  if (found == kept_checkpoints_.end() || !found->second.is_released || !found->second.is_written) return;
  kept_checkpoints_.erase(found);
  if (!ended_) send(wire::encode(wire::CheckpointStored{report, {}, true}));
}

Worker::Memory Worker::take_memory() {
  Memory memory;
  for (auto& [report, kept] : kept_checkpoints_) memory.push_back(std::move(kept.memory));
  kept_checkpoints_.clear();
  return memory;
}

/// The driver hears no heartbeat any more, but something still goes on.
void Worker::tell_of_writing() {
  if (unwritten() == 0) return;
  const std::uint64_t progress = (writer_ ? writer_->progress() : 0) + (hasher_ ? hasher_->waiting() : 0);
  if (std::exchange(written_, progress) != progress) driver_.send(wire::WorkerAlive{attempt_, rank_});
  writing_told_.set(kWritingTold, [this] { tell_of_writing(); });
}

void Worker::drop_checkpoints() {
  drops_checkpoints_ = true;
  writer_.reset();
  hasher_.reset();
  tell();
}

bool Worker::read_log() {
  const ssize_t size = ::read(log_.get(), buffer.data(), kLogRead);
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  const bool at_end = size <= 0;
  if (at_end) log_watch_.pause();
  std::string text = at_end ? text_.finish() : text_.add(std::span(buffer).first(static_cast<std::size_t>(size)));
  if (!text.empty()) driver_.send(wire::LogText{attempt_, rank_, std::move(text)});
  return !at_end;
}

void Worker::pause(bool paused) {
  if (kept_ && !paused) return;
  for (Watch* watch : {&socket_watch_, &log_watch_}) paused ? watch->pause() : watch->resume();
}

void Worker::keep() {
  // It flushed its output before its last message; what its threads write later stays in the pipe.
  for (int i = 0; i < kMostReads && read_log();) ++i;
  kept_ = true;
  pause(true);
}

void Worker::begin(int attempt, std::span<const Bytes> messages) {
  attempt_ = attempt;
  kept_ = false;
  kept_checkpoints_.clear();
  if (!driver_.full()) pause(false);
  tell_started();
  for (const Bytes& message : messages) send(message);
}

/// Part of a message has moved. Tell the driver that the worker is alive, because the rest may take longer than the
/// heartbeat timeout.
void Worker::moved() {
  if (now() - told_alive_ < 1s) return;
  told_alive_ = now();
  driver_.send(wire::WorkerAlive{attempt_, rank_});
}

// ---------------------------------------------------------------- what it is told

void Worker::send(std::span<const std::uint8_t> message) {
  wire::append_frame(outgoing_, message);
  if (!writing_) write();
}

void Worker::write() {
  writing_ = false;
  while (sent_ < outgoing_.size()) {
    const ssize_t size =
        ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent_ += static_cast<std::size_t>(size);
      if (sent_ < outgoing_.size()) moved();
    } else if (errno == EAGAIN) {
      writing_ = true;
      socket_watch_.once_writable([this] { write(); });
      return;
    } else if (errno != EINTR) {
      break;  // the worker is gone; its exit is reported elsewhere
    }
  }
  Bytes().swap(outgoing_);
  sent_ = 0;
}

void Worker::signal(int signal) {
  if (has_process()) sys::send_signal(process_.pidfd.get(), signal);
}

void Worker::kill() {
  killed_ = true;
  if (!has_process()) return;
  const auto family = sys::descendants(process_.pid);
  ::kill(-process_.pid, SIGKILL);
  sys::send_signal(process_.pidfd.get(), SIGKILL);
  for (const int pid : family) ::kill(pid, SIGKILL);
}

// ---------------------------------------------------------------- stacks

void Worker::dump_stacks(Seconds timeout) {
  if (!has_process()) return;
  stacks_text_.clear();
  dumping_ = true;
  const auto status = sys::process_status(process_.pid);
  if (status && (status->state == 'T' || status->state == 't'))
    return finish_stacks("It is stopped and cannot write its stacks; SIGCONT lets it continue.\n");
  if (!sys::catches_signal(process_.pid, SIGUSR2))
    return finish_stacks("It has just started and cannot write its stacks yet.\n");
  stacks_deadline_.set(timeout, [this] { finish_stacks(stacks_text_.empty() ? "It did not answer in time.\n" : ""); });
  signal(SIGUSR2);
}

void Worker::read_stacks() {
  const ssize_t size = ::read(stacks_.get(), buffer.data(), kLogRead);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return stacks_watch_.pause();
  if (!dumping_) return;
  const std::string_view text(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(size));
  const std::size_t end = text.find('\0');
  if (stacks_text_.size() < kMaxStacks) stacks_text_ += text.substr(0, end);
  if (end != std::string_view::npos) return finish_stacks("");
  stacks_quiet_.set(kStacksQuiet, [this] { finish_stacks(""); });
}

void Worker::finish_stacks(const char* remark) {
  if (!dumping_) return;
  dumping_ = false;
  stacks_quiet_.cancel();
  stacks_deadline_.cancel();
  TextStream text;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(stacks_text_.data());
  std::string valid = text.add({bytes, stacks_text_.size()}) + text.finish();
  driver_.send(wire::WorkerStacks{attempt_, rank_, describe(process_.pid) + remark + valid});
}

// ---------------------------------------------------------------- its end

void Worker::process_ended() {
  process_watch_.pause();
  finish_stacks("It ended before it wrote its stacks.\n");
  ended_ = true;
  for (int i = 0; !kept_ && i < kMostReads && read_messages();) ++i;
  for (int i = 0; !kept_ && i < kMostReads && read_log();) ++i;
  if (!status_) status_ = sys::take_exit(process_.pidfd.get(), false);
  if (!status_ && parent_died_) status_ = sys::ExitStatus{0, SIGKILL};
  tell();
}

void Worker::parent_says(std::optional<sys::ExitStatus> status) {
  if (told_) return;
  if (status) status_ = status;
  parent_died_ = !status;
  // An orphan is our child now. If its parent reaped it and then died, its status is lost: report how workers of a dead
  // parent end.
  if (ended_ && !status_) status_ = sys::take_exit(process_.pidfd.get(), false).value_or(sys::ExitStatus{0, SIGKILL});
  tell();
}

void Worker::end(sys::ExitStatus status) {
  status_ = status;
  ended_ = true;
  tell();
}

void Worker::tell() {
  if (told_ || !ended_ || !status_) return;
  if (unwritten() > 0) return tell_of_writing();
  told_ = true;
  if (!unheard_.empty() && status_->signal != 0) tell_of_loss(unheard_);
  gone_(*this);
}

}  // namespace lockstep::agent
