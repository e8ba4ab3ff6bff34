#include "worker/worker_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/failure.h"
#include "base/log.h"
#include "base/text.h"
#include "store/positions.h"
#include "store/shared_checkpoint.h"
#include "sys/node.h"
#include "wire/codec.h"

namespace lockstep::worker {
namespace {

/// "16 MB", "17.3 MB".
std::string size_text(std::size_t bytes) {
  std::string text = human_size(static_cast<double>(bytes));
  if (const auto zero = text.find(".0 "); zero != std::string::npos) text.erase(zero, 2);
  return text;
}

/// Throws an error that names the biggest metric and says what to do.
[[noreturn]] void refuse_size(const Value& metrics, std::size_t size, int most) {
  std::string path = "metrics";
  std::size_t biggest_size = size;
  for (const Value* at = &metrics; at->is_object() && !at->empty();) {
    const Value& dict = *at;
    std::string key;
    biggest_size = 0;
    for (const auto& [name, value] : dict.get_ref<const Value::object_t&>()) {
      const std::size_t value_size = wire::encode_value(value).size();
      if (value_size <= biggest_size) continue;
      biggest_size = value_size;
      at = &value;
      key = name;
    }
    path += "[" + in_quotes(key) + "]";
  }
  throw ConfigError("[report] the metrics take " + size_text(size) + ", of which " + path + " is " +
                    size_text(biggest_size) + "; a report may have at most " +
                    size_text(static_cast<std::size_t>(most)) +
                    ". Put what is big into a checkpoint: report(metrics, checkpoint); or raise max_report_size of "
                    "RunConfig");
}

/// The encoded metrics.
Bytes encoded(const Value& metrics, int most) {
  if (!metrics.is_object() && !metrics.is_null())
    throw ConfigError("[report] metrics must be a dict of names and plain values");
  // report({}, ...) in C++ gives null.
  Bytes bytes = wire::encode_value(metrics.is_null() ? Value::object() : metrics);
  if (bytes.size() > static_cast<std::size_t>(most)) refuse_size(metrics, bytes.size(), most);
  return bytes;
}

/// `is_fixed`: the worker that wrote it is dead, so it does not change.
Checkpoint in_memory(const wire::MemoryFiles& memory, bool is_fixed) {
  std::vector<detail::SharedFile> files;
  for (const auto& [name, offset, size] : memory.files) files.push_back({name, offset, size});
  return detail::checkpoint_in(memory.path, files, memory.manifest, is_fixed);
}

wire::Begin first_message(wire::Channel& channel) {
  const auto frame = channel.receive();
  if (!frame) throw EngineError("[worker] the agent closed the connection before the first message");
  auto message = wire::decode<wire::DriverToWorker>(*frame);
  auto* begin = std::get_if<wire::Begin>(&message);
  if (begin == nullptr) throw EngineError("[worker] the first message is not 'begin'");
  return std::move(*begin);
}

}  // namespace

WorkerSession::WorkerSession(int socket) : channel_(sys::Descriptor(socket)), begin_(first_message(channel_)) {
  open();
}

WorkerSession::WorkerSession(wire::Channel channel, wire::Begin begin)
    : channel_(std::move(channel)), begin_(std::move(begin)), kept_(true) {
  open();
}

void WorkerSession::open() {
  reports_ = begin_.first_report;
  meetings_ = begin_.first_meeting;
  gate_.emplace(begin_.answered, begin_.rank == 0, begin_.first_report);
  outbox_.emplace(
      channel_, Seconds(begin_.heartbeat_interval), [this] { return wire::encode(wire::Heartbeat{progress_}); },
      [this] { lost(); });
  checkpoints_.emplace(
      CheckpointQueue::Options{begin_.storage, begin_.score_attribute, begin_.persist_every, begin_.skip_when_busy},
      *outbox_);
  if (!begin_.checkpoint_memory.path.empty()) open_memory();
  if (begin_.lease > 0) guard_.renew(begin_.lease);
  receiver_ = std::thread([this] { receive(); });
}

WorkerSession::~WorkerSession() {
  ended_ = true;
  gate_->open();
  guard_.stop();
  checkpoints_->close();
  outbox_->close();
  if (!receiver_.joinable()) return;  // the next session has the socket
  ::shutdown(channel_.fd(), SHUT_RDWR);
  receiver_.join();
}

void WorkerSession::start() {
  last_report_ = now();
  outbox_->add(wire::encode(wire::WorkerReady{getpid(), sys::host_name(), node_ip(), kept_}));
}

void WorkerSession::finish(Bytes value) {
  checkpoints_->wait();
  Bytes last = wire::encode(wire::WorkerFinished{std::move(value)});
  if (begin_.keep) {
    // No heartbeat may follow: it could be taken for one of the next run.
    outbox_->close(std::move(last));
    ended_ = true;
    guard_.stop();
    checkpoints_->close();
    return;
  }
  outbox_->add(std::move(last));
  outbox_->flush();
  ended_ = true;
}

std::optional<WorkerSession::Next> WorkerSession::wait_for_next() {
  receiver_.join();
  if (!next_begin_ || !next_payload_) return std::nullopt;
  // This object stays, because others may hold it. Free what it held.
  begin_.env = {};
  begin_.checkpoint_files = {};
  resumed_memory_.reset();
  begin_.config = nullptr;
  begin_.services = {};
  begin_.python_path = begin_.argv = {};
  given_.reset();
  meetings_done_.clear();
  return Next{std::make_unique<WorkerSession>(std::move(channel_), std::move(*next_begin_)), std::move(*next_payload_)};
}

/// A kept worker outlives its runs, and the user's threads in it may still report.
void WorkerSession::check_running() const {
  if (ended_) throw EngineError("[session] the run is over; report from the training function before it returns");
}

void WorkerSession::fail(Failure failure) {
  // The agent has what was reported before, and writes it.
  failure.node = sys::host_name();
  outbox_->add(wire::encode(wire::WorkerFailed{to_value(failure)}));
  outbox_->flush();
  ended_ = true;
}

/// Empty metrics: only a checkpoint.
void WorkerSession::add_report(Bytes metrics, bool with_checkpoint, bool preempted) {
  const Instant time = now();
  wire::Report report;
  report.index = reports_++;
  report.timestamp = unix_seconds(wall_now());
  if (!metrics.empty()) report.time_this_iter = Seconds(time - std::exchange(last_report_, time)).count();
  report.has_checkpoint = with_checkpoint;
  report.metrics = std::move(metrics);
  report.preempted = preempted;
  outbox_->add(std::move(report), begin_.answered || gate_->is_paused());
  ++progress_;
}

/// If the checkpoint cannot be copied, nothing is reported: the function may catch the error and continue.
template <class Contents>
bool WorkerSession::add_checkpoint(Bytes metrics, const Contents& contents) {
  ReportGate::Passage passage(*gate_);
  const bool preempted = should_checkpoint();
  auto copy =
      checkpoints_->copy({reports_, begin_.first_seq + checkpoints_made_, partial_name()}, contents, own_files());
  passage.accept([&] {
    last_checkpoint_report_ = reports_.load();
    add_report(std::move(metrics), true, preempted);
    ++checkpoints_made_;
    checkpoints_->hand_over(std::move(copy));
  });
  outbox_->flush();  // from here on the death of this process loses nothing
  return passage.wait();
}

const std::string& WorkerSession::node_address(int rank) const {
  int first = 0;
  for (const wire::PeerNode& node : begin_.peers) {
    if (rank >= first && rank < first + node.ranks) return node.address;
    first += node.ranks;
  }
  throw ConfigError("[session] there is no rank " + std::to_string(rank) + "; world_size is " +
                    std::to_string(begin_.world_size));
}

std::string WorkerSession::node_ip() const {
  return begin_.peers.size() > 1 ? node_address(begin_.rank) : sys::node_ip();
}

std::string WorkerSession::partial_name() const {
  char name[80];
  // Where the driver alone knows the number, because some checkpoints do not get as far as that.
  if (begin_.keep_all_ranks || begin_.persist_every > 1 || begin_.skip_when_busy)
    std::snprintf(name, sizeof name, "checkpoint_%06d_report_%06d.partial", begin_.first_seq, reports_.load());
  else
    std::snprintf(name, sizeof name, "checkpoint_%06d.partial", begin_.first_seq + checkpoints_made_);
  return name;
}

void WorkerSession::report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) {
  if (deliver(metrics, checkpoint)) throw StopTraining();
}

bool WorkerSession::deliver(const std::optional<Value>& metrics, const std::optional<Checkpoint>& checkpoint) {
  if (!checkpoint || !keeps_checkpoints()) return deliver_metrics(metrics, checkpoint.has_value());
  return add_checkpoint(prepared(metrics), *checkpoint);
}

bool WorkerSession::deliver(const std::optional<Value>& metrics, const store::DictParts& parts) {
  return add_checkpoint(prepared(metrics), parts);
}

bool WorkerSession::deliver_metrics(const std::optional<Value>& metrics, bool has_checkpoint) {
  Bytes bytes = prepared(metrics);
  ReportGate::Passage passage(*gate_);
  passage.accept([&] {
    if (has_checkpoint) last_checkpoint_report_ = reports_.load();
    add_report(std::move(bytes), false);
  });
  return passage.wait();
}

Bytes WorkerSession::prepared(const std::optional<Value>& metrics) {
  check_running();
  checkpoints_->check();
  return metrics ? encoded(*metrics, begin_.max_report_size) : Bytes{};
}

void WorkerSession::request_stop() {
  check_running();
  if (gate_->holds()) return;
  gate_->hold();
  outbox_->add(wire::encode(wire::StopWanted{}));
}

wire::CheckpointGiven WorkerSession::ask_for_checkpoint() {
  checkpoints_->wait();
  const std::lock_guard one_at_a_time(asking_);
  outbox_->add(wire::encode(wire::CheckpointWanted{last_checkpoint_report_}));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || given_; });
  if (!given_) throw EngineError("[session] the agent is gone");
  ++progress_;
  return *std::exchange(given_, std::nullopt);
}

std::optional<Checkpoint> WorkerSession::checkpoint() {
  if (reports_ > 0) {
    auto given = ask_for_checkpoint();
    if (!given.path.empty()) return Checkpoint::from_directory(given.path);
    if (!given.files.empty()) return Checkpoint::from_files(std::move(given.files));
    // Copied, because later checkpoints take its place.
    if (!given.memory.path.empty()) return Checkpoint::from_bytes(in_memory(given.memory, false).to_bytes());
  }
  return resumed_from();
}

/// At once, because the driver may close it as soon as this rank has reported.
void WorkerSession::open_memory() {
  try {
    resumed_memory_ = in_memory(begin_.checkpoint_memory, true);
  } catch (...) {
    resume_error_ = std::current_exception();
  }
}

std::optional<Checkpoint> WorkerSession::resumed_from() const {
  if (resume_error_) std::rethrow_exception(resume_error_);
  if (resumed_memory_) return resumed_memory_;
  if (!begin_.checkpoint.empty()) return Checkpoint::from_directory(begin_.checkpoint);
  if (!begin_.checkpoint_files.empty()) return Checkpoint::from_files(begin_.checkpoint_files);
  return std::nullopt;
}

std::optional<Value> WorkerSession::saved_position(const std::string& dataset) {
  const std::lock_guard lock(keeping_);
  if (!saved_positions_) {
    saved_positions_ = Value::object();
    const auto from = resumed_from();
    const auto names = from ? from->files() : std::vector<std::string>();
    if (std::find(names.begin(), names.end(), store::kPositionsName) != names.end())
      saved_positions_ = store::decode_positions(from->read(store::kPositionsName));
  }
  const auto found = saved_positions_->find(dataset);
  return found == saved_positions_->end() ? std::nullopt : std::optional(*found);
}

void WorkerSession::keep_position(const std::string& dataset, std::function<Value()> position) {
  saved_position(dataset);  // now, as the checkpoint may be deleted later
  const std::lock_guard lock(keeping_);
  positions_[dataset] = std::move(position);
}

void WorkerSession::keep_file(const std::string& name, Bytes contents) {
  const std::lock_guard lock(keeping_);
  if (contents.empty())
    files_.erase(name);
  else
    files_[name] = std::move(contents);
}

CheckpointQueue::OwnFiles WorkerSession::own_files() {
  const std::lock_guard lock(keeping_);
  CheckpointQueue::OwnFiles own;
  if (begin_.rank != 0) return own;  // one of each name in the checkpoint of all ranks
  // A data set that was not used since the start is where it was then.
  Value datasets = saved_positions_.value_or(Value::object());
  for (const auto& [name, position] : positions_) datasets[name] = position();
  if (!datasets.empty()) own.emplace_back(store::kPositionsName, store::encode_positions(datasets));
  own.insert(own.end(), files_.begin(), files_.end());
  return own;
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

std::optional<Seconds> WorkerSession::time_left() const {
  const auto not_negative = [](Seconds left) { return std::max(left, Seconds{0}); };
  if (const Instant end = preempted_at_; end != Instant::max()) return not_negative(end - now());
  const auto found = begin_.env.find("SLURM_JOB_END_TIME");  // seconds since 1970
  if (found == begin_.env.end()) return std::nullopt;
  const double end = std::strtod(found->second.c_str(), nullptr);
  return end > 0 ? std::optional(not_negative(Seconds(end - unix_seconds(wall_now())))) : std::nullopt;
}

void WorkerSession::serve_calls(const std::function<Bytes(const Bytes& payload)>& answer) {
  if (!begin_.calls) return;
  outbox_->add(wire::encode(wire::CallsAwaited{}));
  while (const auto payload = next_call()) {
    outbox_->add(wire::encode(wire::CallDone{answer(*payload)}));
    ++progress_;
  }
}

std::optional<Bytes> WorkerSession::next_call() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || stopping_ || call_ || calls_over_; });
  ++progress_;
  calls_over_ = false;
  return stopping_ ? std::nullopt : std::exchange(call_, std::nullopt);
}

void WorkerSession::receive() {
  while (auto frame = channel_.receive()) {
    if (wire::holds<wire::CheckpointStored>(*frame)) {
      checkpoints_->stored(wire::decode_one<wire::CheckpointStored>(*frame));
      ++progress_;
      continue;
    }
    auto message = wire::decode<wire::DriverToWorker>(*frame);
    if (auto* begin = std::get_if<wire::Begin>(&message)) next_begin_ = std::move(*begin);
    if (auto* payload = std::get_if<wire::Payload>(&message)) {
      next_payload_ = std::move(payload->payload);
      return;  // what follows belongs to the next session
    }
    obey(message);
  }
  lost();
}

void WorkerSession::obey(wire::DriverToWorker& message) {
  if (std::holds_alternative<wire::Interrupt>(message)) {
    stopping_ = true;
    gate_->open();
    kill(getpid(), SIGINT);
    const std::lock_guard lock(mutex_);
    changed_.notify_all();  // who waits for a call
  } else if (std::holds_alternative<wire::Settle>(message)) {
    gate_->settle();
    outbox_->add(wire::encode(wire::Settled{}));
  } else if (const auto* preempt = std::get_if<wire::Preempt>(&message)) {
    preempted_at_ = now() + ticks(Seconds(preempt->left));
  } else if (const auto* lease = std::get_if<wire::Lease>(&message)) {
    guard_.renew(lease->until);
  } else if (std::holds_alternative<wire::HoldReports>(message)) {
    outbox_->add(wire::encode(wire::ReportsHeld{gate_->hold()}));
  } else if (const auto* end = std::get_if<wire::EndAfter>(&message)) {
    gate_->end_after(end->reports, end->restarts);
  } else if (std::holds_alternative<wire::PauseReports>(message)) {
    outbox_->add(wire::encode(wire::ReportsPaused{gate_->pause()}));
  } else if (const auto* pass = std::get_if<wire::LetPass>(&message)) {
    gate_->let_pass(pass->reports);
  } else if (const auto* on = std::get_if<wire::GoOn>(&message)) {
    gate_->go_on(on->reports);
  } else {
    const std::lock_guard lock(mutex_);
    if (auto* done = std::get_if<wire::MeetingDone>(&message)) meetings_done_[done->meeting] = std::move(*done);
    if (auto* given = std::get_if<wire::CheckpointGiven>(&message)) given_ = std::move(*given);
    if (auto* call = std::get_if<wire::Call>(&message)) call_ = std::move(call->payload);
    if (std::holds_alternative<wire::CallsOver>(message)) calls_over_ = true;
    changed_.notify_all();
  }
}

void WorkerSession::lost() {
  if (ended_.exchange(true)) return;
  // Nobody is left to report to. The worker leads its process group, so this also kills its children.
  kill(0, SIGKILL);
}

}  // namespace lockstep::worker
