#include "driver/run_effects.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/begin.h"
#include "driver/failures.h"
#include "wire/codec.h"

namespace lockstep::driver {
namespace {

/// run.json is written at most this long after a report.
constexpr auto kSaveAfter = 1s;
constexpr auto kValidationsAfter = std::chrono::milliseconds(100);  ///< how often checks are looked after

Failure failure_of(FailureKind kind, const std::exception& error) {
  Failure failure;
  failure.kind = kind;
  failure.message = error.what();
  return failure;
}

std::string end_of(const std::string& state) {
  if (state == "died") return state;
  return (state == "interrupted" || state == "stopped" || state == "preempted" ? "was " : "had ") + state;
}

}  // namespace

/// Errors of the driver itself become events. One of a callback ends the run; one of the disk is a failure like any
/// other.
void RunEffects::guarded(Answers& answers, const std::function<void()>& body) {
  try {
    body();
  } catch (const InterruptError&) {
    answers.push_back(CallbackInterrupted{});
  } catch (const CallbackError& error) {
    answers.push_back(DriverFailed{failure_of(FailureKind::callback, error), true});
  } catch (const StorageError& error) {
    answers.push_back(DriverFailed{failure_of(FailureKind::storage, error), false});
  } catch (const std::exception& error) {
    answers.push_back(DriverFailed{failure_of(FailureKind::internal, error), true});
  }
}

void RunEffects::act(Action& action, Answers& answers) {
  std::visit([&](auto& each) { guarded(answers, [&] { done(each, answers); }); }, action);
  if (recorder_->take_stop()) answers.push_back(StopWanted{});
}

// ---------------------------------------------------------------- agents

void RunEffects::done(Reconnect&, Answers& answers) {
  try {
    agent_.emplace(reconnect_(), run_);
  } catch (const Error& error) {  // no agent can be started
    return answers.push_back(DriverFailed{failure_of(FailureKind::node, error), true});
  }
  agent_->send(0, plan_.program.fork_server);
}

void RunEffects::done(ConfigureNode& action, Answers&) { agent_->send(action.node, plan_.program.fork_server); }

void RunEffects::done(PlaceWorkers& action, Answers& answers) {
  try {
    if (auto placement = plan_.wiring.place()) return answers.push_back(Placed{action.attempt, *std::move(placement)});
    if (std::exchange(waited_in_, action.attempt) != action.attempt)
      console_.line("lockstep: waiting for another node in place of the lost one");
    answers.push_back(NotPlaced{action.attempt});
  } catch (const ConfigError& error) {  // it does not fit, and will not
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::node, error), true});
  } catch (const Error& error) {
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::node, error), false});
  }
}

void RunEffects::done(LeaveNode& action, Answers&) {
  if (plan_.wiring.leave) plan_.wiring.leave(action.node);
}

void RunEffects::done(LookForRoom& action, Answers& answers) {
  RoomFound found{action.attempt, 0};
  try {
    if (plan_.wiring.room) found.workers = plan_.wiring.room();
  } catch (const Error& error) {
    log_debug(error.what());  // the run goes on as it is
  }
  answers.push_back(found);
}

void RunEffects::done(StopWorkers& action, Answers&) {
  for (const int node : action.nodes)
    agent_->send(node, wire::StopAttempt{action.attempt, action.interrupt, action.grace.count()});
}
void RunEffects::done(KeepWorkers& action, Answers&) {
  for (const int node : action.nodes) agent_->send(node, wire::KeepWorkers{action.attempt});
}
void RunEffects::done(TakeStacks& action, Answers&) {
  for (const int node : action.nodes) agent_->send(node, wire::DumpStacks{action.attempt, action.timeout.count()});
}
void RunEffects::done(StopWorker& action, Answers&) {
  agent_->send(node_of(action.rank), wire::StopWorker{action.attempt, action.rank});
}

// ---------------------------------------------------------------- workers start

void RunEffects::done(StartWorkers& action, Answers& answers) {
  try {
    start(action);
    guarded(answers, [&] { save(); });                // the workers do not wait for the disk
  } catch (const store::NoUsableCheckpoint& error) {  // another attempt would fail too
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::storage, error), true});
  } catch (const ConfigError& error) {
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::node, error), true});
  } catch (const StorageError& error) {
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::storage, error), false});
  } catch (const EngineError& error) {
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::node, error), false});
  } catch (const std::exception& error) {
    answers.push_back(StartFailed{action.attempt, failure_of(FailureKind::internal, error), true});
  }
}

void RunEffects::check_nodes() const {
  std::map<int, std::string> names;
  for (const int node : placement_.nodes()) names[node] = names_.at(node);
  names[0] = names_.at(0);
  if (const std::string text = differences(facts_, names); !text.empty())
    throw ConfigError("[start] the nodes are not alike: " + text + "; make them alike, or leave nodes out");
}

std::string RunEffects::on_node(int node) const {
  const auto name = names_.find(node);
  return node == 0 ? "" : "node " + (name == names_.end() ? std::to_string(node) : name->second) + ": ";
}

void RunEffects::start(const StartWorkers& action) {
  attempt_ = action.attempt;
  const int size_before = placement_.world_size();
  placement_ = action.placement;
  check_nodes();
  const int size = placement_.world_size();
  if (size_before != 0 && size != size_before)
    say_of_workers(counted_workers(size) + " instead of " + std::to_string(size_before));
  if (attempt_ == book_.first_attempt())
    for (const auto& note : placement_.notes) say_of_workers(note);
  book_.record().attempt = attempt_;
  std::vector<std::string> nodes;
  for (const int node : placement_.nodes()) nodes.push_back(names_[node]);
  book_.record().begin_attempt(attempt_, size, std::move(nodes), unix_seconds(clock_.wall_now()));
  logs_->begin_attempt(attempt_, size, clock_.wall_now());
  console_.end_lines();
  pids_.assign(static_cast<std::size_t>(size), 0);
  values_.assign(static_cast<std::size_t>(size), {});
  finished_ = 0;
  // If a user restores a run with resume_from_checkpoint, the run may begin there when its own checkpoints are damaged.
  if (plan_.group.record) keeper_.begin_attempt(size, plan_.restore && plan_.options.resume_from.has_value());
  const std::optional<Checkpoint> resume = keeper_.latest() ? keeper_.latest() : plan_.options.resume_from;
  if (plan_.restore && attempt_ == book_.first_attempt())
    say("lockstep: the run " + end_of(book_.state_before()) + "; " +
        (resume ? "it continues from " + (resume->path() ? resume->path()->filename().string() : "a checkpoint")
                : "it has no checkpoint, so it begins again"));
  recorder_->begin_attempt(
      size, {number_in<long>(keeper_.latest_metrics(), "training_iteration"), book_.time_total().count()});
  if (service_ != nullptr) service_->begin_attempt(attempt_, size, placement_.head_address);
  const Value begin = common_begin(attempt_, resume);
  std::map<int, wire::StartAttempt> starts;
  for (int rank = 0; rank < size; ++rank) {
    wire::StartAttempt& start = starts[node_of(rank)];
    start.workers.push_back({rank, begin_of(begin, rank)});
  }
  for (auto& [node, start] : starts) {
    start.attempt = attempt_;
    start.payload = plan_.function.payload;
    agent_->send(node, start);
  }
}

Value RunEffects::common_begin(int attempt, const std::optional<Checkpoint>& resume) const {
  wire::Begin begin = begin_of_all(plan_, book_.record(), attempt);
  begin.world_size = placement_.world_size();
  begin.peers = peers_of(placement_);
  begin.first_seq = keeper_.next_seq();
  begin.answered = recorder_->decides_end();
  begin.persist_every = persist_every();
  auto source = given(resume);
  begin.checkpoint = std::move(source.path);
  begin.checkpoint_files = std::move(source.files);
  begin.checkpoint_memory = std::move(source.memory);
  return wire::to_value(begin);
}

/// A checkpoint that is only in memory must be one rank's, and every worker must be able to open the memory of the
/// driver's machine.
int RunEffects::persist_every() const {
  const auto& config = plan_.options.run.checkpoint;
  const auto nodes = placement_.nodes();
  const bool is_one_machine = std::ranges::all_of(nodes, [](int node) { return node == 0; });
  return config.keep_all_ranks || plan_.backend.replaces_workers() || !is_one_machine ? 1 : config.persist_every;
}

/// How a worker gets the checkpoint from which it resumes: from memory, if the latest one is there.
wire::CheckpointGiven RunEffects::given(const std::optional<Checkpoint>& resume) const {
  if (auto memory = keeper_.latest_memory()) return {{}, {}, std::move(*memory)};
  return given_of(resume);
}

Value RunEffects::begin_of(Value begin, int rank) const {
  const RankPlace& place = placement_.ranks.at(static_cast<std::size_t>(rank));
  begin["type"] = wire::Begin::kName;
  begin["rank"] = rank;
  begin["local_rank"] = place.local_rank;
  begin["local_world_size"] = place.local_world_size;
  begin["node_rank"] = place.node_rank;
  for (const auto& [name, value] : place.env) begin["env"][name] = value;
  if (service_ != nullptr) begin["services"][service_->name()] = service_->begin_of(rank);
  return begin;
}

void RunEffects::done(ReplaceWorker& action, Answers& answers) {
  if (const auto why = service_ != nullptr ? service_->lose(action.rank, clock_.now()) : std::nullopt) {
    action.failure.message += "; it cannot be replaced alone: " + *why;
    return answers.push_back(CannotReplace{action.attempt, action.counts, std::move(action.failure)});
  }
  note(action.failure);
  console_.warning(describe({action.failure}) + "; it is restarted, the other ranks continue");
  recorder_->restarted(action.rank);
  if (action.away) recorder_->finished(action.rank);
  const auto latest = keeper_.begin_rank(action.rank);
  Value begin = begin_of(common_begin(action.attempt, latest ? latest : plan_.options.resume_from), action.rank);
  begin["first_report"] = action.first_report;
  begin["first_meeting"] = action.first_meeting;
  agent_->send(node_of(action.rank), wire::StartWorker{action.attempt, {action.rank, std::move(begin)}});
  save();
}

// ---------------------------------------------------------------- messages to workers

template <class M>
void RunEffects::tell(int rank, const M& message) {
  agent_->send(node_of(rank), wire::ToWorker{attempt_, rank, wire::encode(message)});
}
template <class M>
void RunEffects::tell_all(const M& message) {
  for (const int node : placement_.nodes()) agent_->send(node, wire::ToWorker{attempt_, -1, wire::encode(message)});
}
void RunEffects::done(SettleWorker& action, Answers&) { tell(action.rank, wire::Settle{}); }
void RunEffects::done(InterruptWorker& action, Answers&) { tell(action.rank, wire::Interrupt{}); }
void RunEffects::done(TellPreemption& action, Answers&) {
  tell(action.rank, wire::Preempt{std::max(0.0, Seconds(action.deadline - clock_.now()).count())});
}
void RunEffects::done(HoldReports& action, Answers&) { tell(action.rank, wire::HoldReports{}); }
void RunEffects::done(EndAfter& action, Answers&) {
  tell(action.rank, wire::EndAfter{action.reports, action.restarts});
}
void RunEffects::done(ReleaseMeeting& action, Answers&) { tell(action.rank, action.done); }
void RunEffects::done(MakeCall& action, Answers&) { tell(action.rank, action.call); }
void RunEffects::done(EndCalls& action, Answers&) { tell(action.rank, wire::CallsOver{}); }
void RunEffects::done(GiveCheckpoint& action, Answers&) { tell(action.rank, given(keeper_.hand_out(action.rank))); }
void RunEffects::done(PauseReports& action, Answers&) { tell(action.rank, wire::PauseReports{}); }
void RunEffects::done(LetPass& action, Answers&) { tell_all(wire::LetPass{action.reports}); }
void RunEffects::done(GoOn& action, Answers&) { tell_all(wire::GoOn{action.reports}); }

// ---------------------------------------------------------------- reports and checkpoints

void RunEffects::done(Deliver& action, Answers& answers) {
  Delivered delivered{attempt_, action.rank, {}, action.rank == 0 && recorder_->decides_end()};
  // The checkpoints of reports that were taken may be committed after an error too, and need their metrics.
  const auto answer_first = [&] {
    delivered.looked_at = false;
    answers.push_back(std::move(delivered));
  };
  try {
    recorder_->deliver(action.rank, action.reports, delivered.metrics);
  } catch (const wire::WireError& error) {
    answer_first();
    return answers.push_back(WorkerFailed{attempt_, action.rank, not_understood(error)});
  } catch (const std::exception&) {
    answer_first();
    throw;
  }
  const auto is_its_own = [](const wire::Report& each) { return each.has_checkpoint || !each.metrics.empty(); };
  if (std::ranges::any_of(action.reports, is_its_own))
    keeper_.let_go(action.rank);  // a rank that reports has read the checkpoint it resumes from
  if (!save_due_) save_due_ = clock_.now() + kSaveAfter;
  if (recorder_->take_stop()) answers.push_back(StopWanted{});  // before the report is answered
  answers.push_back(std::move(delivered));
}

void RunEffects::done(Commit& action, Answers& answers) {
  const int report = action.report;
  const auto failed = [&](FailureKind kind, const std::exception& error, bool fatal) {
    answers.push_back(CommitFailed{attempt_, report, failure_of(kind, error), fatal});
  };
  if (plan_.wiring.validations == nullptr && asks_for_check(action))
    alert("report() asked for the validation of a checkpoint, but the trainer has no validation_config");
  try {
    recorder_->flush();  // the report of a committed checkpoint must be on disk too
    answers.push_back(
        Committed{attempt_, report, keeper_.commit(std::move(action), attempt_, placement_.world_size())});
  } catch (const StorageError& error) {
    failed(FailureKind::storage, error, false);
  } catch (const ConfigError& error) {  // two ranks wrote one file
    failed(FailureKind::storage, error, false);
  } catch (const std::exception& error) {
    failed(FailureKind::internal, error, true);
  }
}

void RunEffects::persisted(int attempt, const wire::CheckpointWritten& written, Answers& answers) {
  guarded(answers, [&] {
    keeper_.persist(written, attempt);
    retain();
  });
}

void RunEffects::skipped() {
  if (book_.record().checkpoints_skipped++ == 0)
    console_.warning(
        "checkpoints are reported faster than the disk takes them; those that it does not take are dropped");
}

void RunEffects::done(AnnounceCommit& action, Answers&) {
  const auto committed = keeper_.at(action.seq);
  // Before older ones are removed, so that a callback can make sure that this one is known where they were.
  recorder_->call("on_checkpoint",
                  [&](Callback& callback) { callback.on_checkpoint(committed.first, committed.second); });
  take_validations();
  retain();
  for (const int report : keeper_.take_released(attempt_))
    agent_->send(node_of(0), wire::ReleaseCheckpoint{attempt_, 0, report});
  // What is only in memory is not worth a write to the disk.
  if (!keeper_.latest_memory())
    save();
  else if (!save_due_)
    save_due_ = clock_.now() + kSaveAfter;
}

void RunEffects::retain() {
  keeper_.retain(plan_.wiring.validations != nullptr ? plan_.wiring.validations->waiting() : std::set<int>{});
}

/// Adds what was found to the checkpoints' metrics, and then tells the callbacks. One that fails does not keep the
/// others from that.
void RunEffects::take_validations() {
  validations_due_.reset();
  Validations* validations = plan_.wiring.validations;
  if (validations == nullptr) return;
  std::exception_ptr failed;
  const auto trying = [&](const auto& body) {
    try {
      body();
    } catch (const Error&) {
      if (!failed) failed = std::current_exception();
    }
  };
  std::vector<std::pair<Checkpoint, Value>> checked;
  for (const auto& found : validations->take())
    trying([&] {
      if (auto kept = keeper_.add_metrics(found.first, found.second)) checked.push_back(*std::move(kept));
    });
  for (const auto& each : checked)
    trying([&] {
      recorder_->call_last("on_validated", [&](Callback& callback) { callback.on_validated(each.first, each.second); });
    });
  if (validations->goes_on() && !validations->waiting().empty()) validations_due_ = clock_.now() + kValidationsAfter;
  if (failed) std::rethrow_exception(failed);
}

// ---------------------------------------------------------------- announcements and records

void RunEffects::done(SaveStacks& action, Answers&) {
  if (!plan_.group.record) return;
  std::string text;
  for (std::size_t rank = 0; rank < action.by_rank.size(); ++rank)
    text += "==== rank " + std::to_string(rank) + " ====\n" + action.by_rank[rank] + "\n";
  const auto path = book_.stacks_file(action.attempt);
  book_.files().replace_file(path, text);
  console_.warning("the stacks of all ranks are in " + path.string());
}

void RunEffects::done(AnnounceRunning& action, Answers&) {
  say_of_workers(running_text(pids_));
  recorder_->call("on_attempt_started", [&](Callback& callback) { callback.on_attempt_started(action.attempt); });
}

void RunEffects::done(AnnounceRank& action, Answers&) {
  say_of_workers("rank " + std::to_string(action.rank) + " running (pid " + std::to_string(action.pid) + ")");
}

void RunEffects::done(AnnounceAway& action, Answers&) {
  console_.line("lockstep: the other ranks continue until rank " + std::to_string(action.rank) + " is back");
  recorder_->finished(action.rank);  // their reports do not wait for it
}

void RunEffects::done(AnnounceBack& action, Answers&) {
  console_.line("lockstep: rank " + std::to_string(action.rank) + " takes part again");
  recorder_->joined(action.rank);
}

void RunEffects::done(AnnounceNeedless& action, Answers&) {
  console_.line("lockstep: rank " + std::to_string(action.rank) + " is not needed: the others have finished");
}

void RunEffects::done(AnnounceFinished& action, Answers&) {
  if (!action.asked && ++finished_ == placement_.world_size()) say_of_workers(counted_workers(finished_) + " finished");
  keeper_.let_go(action.rank);
  recorder_->finished(action.rank);
}

void RunEffects::done(AnnounceFailure& action, Answers&) {
  for (Failure& failure : action.failures) note(failure);
  book_.record().end_attempt("failed", unix_seconds(clock_.wall_now()));
  console_.warning("attempt " + std::to_string(action.failures.front().attempt) +
                   " failed: " + describe(action.failures) + (action.again ? "; starting again" : ""));
  recorder_->call("on_attempt_failed",
                  [&](Callback& callback) { callback.on_attempt_failed(action.failures, action.again); });
  if (!action.again) return save();
  if (!save_due_) save_due_ = clock_.now() + kSaveAfter;  // the next attempt saves when it has started
}

void RunEffects::done(AnnounceResize&, Answers&) {
  book_.record().end_attempt("resized", unix_seconds(clock_.wall_now()));
  if (!save_due_) save_due_ = clock_.now() + kSaveAfter;  // the next attempt saves when it has started
}

void RunEffects::done(Warn& action, Answers&) { console_.warning(action.message); }

/// Completes a failure and keeps it for the record.
void RunEffects::note(Failure& failure) {
  const bool placed = failure.rank >= 0 && failure.rank < placement_.world_size();
  if (failure.time == 0) failure.time = unix_seconds(clock_.wall_now());
  if (failure.node.empty()) failure.node = names_[placed ? node_of(failure.rank) : 0];
  if (placed && failure.log_lines.empty()) failure.log_lines = logs_->last_lines(failure.rank);
  if (placed && failure.kind == FailureKind::signal) failure.traceback = logs_->crash(failure.rank);
  book_.record().failures.push_back(failure);
}

void RunEffects::save() {
  save_due_.reset();
  store::RunRecord& record = book_.record();
  record.next_seq = keeper_.next_seq();
  record.training_iteration = recorder_->progress().training_iteration;
  if (!recorder_->last().empty()) record.metrics = recorder_->last();
  book_.save();
}

std::optional<Instant> RunEffects::due() const {
  std::optional<Instant> due = recorder_->flush_due();
  for (const auto& each : {save_due_, validations_due_})
    if (each && (!due || *each < *due)) due = each;
  return due;
}

void RunEffects::tend(Answers& answers) {
  const Instant time = clock_.now();
  if (recorder_->flush_due() && time >= *recorder_->flush_due()) guarded(answers, [&] { recorder_->flush(); });
  if (validations_due_ && time >= *validations_due_)
    guarded(answers, [&] {
      take_validations();
      retain();
    });
  if (!save_due_ || time < *save_due_) return;
  save_due_.reset();
  guarded(answers, [&] { save(); });
}

void RunEffects::take_output(int rank, const std::string& text, Answers& answers) {
  guarded(answers, [&] { logs_->append(rank, text); });
  console_.output(rank, text, clock_.now());
}

void RunEffects::worker_ready(int rank, const wire::WorkerReady& message) {
  recorder_->function_started(rank, {message.hostname, message.node_ip, message.pid});
  pids_.at(static_cast<std::size_t>(rank)) = message.pid;
  keeper_.opened(rank);
}

void RunEffects::worker_finished(int rank, Bytes value) {
  values_.at(static_cast<std::size_t>(rank)) = std::move(value);
}

}  // namespace lockstep::driver
