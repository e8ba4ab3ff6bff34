#include "driver/run_loop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <utility>

#include "base/failure.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/absences.h"
#include "driver/agent_link.h"
#include "driver/begin.h"
#include "driver/checkpoint_keeper.h"
#include "driver/console.h"
#include "driver/failures.h"
#include "driver/rank_logs.h"
#include "driver/recorder.h"
#include "driver/run_record.h"
#include "driver/step.h"
#include "store/function_file.h"
#include "sys/private_files.h"
#include "wire/codec.h"

namespace lockstep::driver {
namespace {

/// So long a driver may be busy without a word about it.
constexpr Seconds kShortAbsence{0.1};
/// A rank that is away is never so many reports behind the others that they should hear of it.
constexpr int kMostMissed = 500;
/// More than ranks that have returned wait for each other.
constexpr Seconds kLeavingTime{3600.0};
/// From an attempt that could not be begun to the next.
constexpr auto kUntilNextBegin = 1s;
/// Workers are judged when so much time has passed, though there is always more to read.
constexpr auto kLongestBacklog = 60s;

/// The agent cannot start workers at all.
class CannotStart : public EngineError {
 public:
  explicit CannotStart(const std::string& why) : EngineError("[start] workers cannot be started: " + why) {}
};

/// The loop: the pure state, and everything that its actions touch.
class RunLoop {
 public:
  RunLoop(const RunPlan& plan, int agent)
      : plan_(plan),
        console_(plan.options.run.verbose, plan.options.run.log_to_console, Screen::of_process()),
        agent_(agent),
        directory_(plan.directory(), files_),
        keeper_(directory_, plan.options.run.checkpoint, [this](const std::string& text) { alert(text); }) {
    state_.policy = plan.policy();
    if (const auto rendezvous = plan.rendezvous_options()) rendezvous_.emplace(*rendezvous);
  }

  RunOutcome run() {
    try {
      open();
      agent_.send(plan_.program);
      while (!end_) {
        for (auto event = take_event(); event && !end_; event = take_event()) handle(std::move(*event));
        if (!end_) wait();
      }
      return close();
    } catch (const std::exception& error) {
      if (recorded_) leave_record(error);
      throw;
    }
  }

 private:
  // ------------------------------------------------------------ the directory

  void open() {
    started_ = now();
    if (plan_.restore) {
      directory_.open();
      files_.enter(directory_.path());
      directory_.lock();
      record_ = RunRecord::from_value(directory_.read_run_json());
    } else {
      if (plan_.record) directory_.create();
      if (plan_.record) files_.enter(directory_.path());
      if (plan_.record) directory_.lock();
      record_.name = plan_.options.run.name;
      record_.created = unix_seconds(wall_now());
      record_.trial_id = random_hex(5) + "_00000";
      record_.experiment_id = random_hex(32);
    }
    record_.trainer = plan_.trainer;
    record_.state = "running";
    record_.error.clear();
    record_.warnings.clear();
    record_.finished = 0;
    record_.num_workers = plan_.options.scaling.num_workers;
    record_.config_run = plan_.settings();
    if (!plan_.metadata.empty()) record_.metadata = plan_.metadata;
    first_attempt_ = plan_.restore ? record_.attempt + 1 : 0;
    state_.attempt = first_attempt_ - 1;
    time_before_ = record_.time_total_s;
    keeper_.set_next_seq(plan_.restore ? record_.next_seq : first_seq());
    // run.json comes last: with it the directory is a run that can be restored.
    if (plan_.record) directory_.write_file("params.json", to_pretty_json(plan_.options.config));
    if (plan_.record && !plan_.kept_function().empty()) save_function();
    save_record();

    metrics::RunConstants constants{record_.trial_id, record_.experiment_id, "0", plan_.options.config,
                                    metrics::detailed_metrics_wanted()};
    recorder_.emplace(plan_, std::move(constants), console_, files_);
    logs_.emplace(plan_.record ? directory_.logs() : "", plan_.options.scaling.num_workers, files_);
    say("lockstep: run " + in_quotes(record_.name) + " in " + directory_.path().string());
    if (!plan_.keep_workers)
      for (const auto& note : plan_.notes) say("lockstep: " + note);
    guarded([&] { recorder_->start(info(), {record_.training_iteration, record_.time_total_s}); });
    if (recorder_->take_stop()) events_.push_back(StopWanted{});
  }

  void save_function() {
    if (plan_.restore && record_.function_sha256 != plan_.function_sha256) {
      // Between the two files only one of them is new: until run.json is written again either hash is right.
      record_.function_sha256_next = plan_.function_sha256;
      save_record();
    }
    store::write_function(files_, directory_.path(), plan_.kept_function(), plan_.function_sha256);
    record_.function_sha256 = plan_.function_sha256;
    record_.function_sha256_next.clear();
  }

  /// A run that resumes from another's checkpoint counts on from that one's number, as users of Ray know it.
  int first_seq() const {
    const auto& from = plan_.options.resume_from;
    const auto manifest = from ? from->metadata() : std::nullopt;
    return manifest ? std::max(0, number_in<int>(*manifest, "seq")) : 0;
  }

  /// What a run tells of itself.
  void say(const std::string& text) {
    if (plan_.record) console_.line(text);
  }

  /// The same of workers that are started for this run.
  void say_of_workers(const std::string& text) {
    if (!plan_.keep_workers) say("lockstep: " + text);
  }

  /// Once, and for the record.
  void alert(const std::string& text) {
    if (std::ranges::find(record_.warnings, text) != record_.warnings.end()) return;
    record_.warnings.push_back(text);
    console_.alert(text);
  }

  RunInfo info() const {
    return {record_.name,          directory_.path(),    record_.trial_id,
            record_.experiment_id, plan_.options.config, plan_.options.scaling.num_workers,
            plan_.trainer};
  }

  void save_record() {
    record_.attempt = std::max(state_.attempt, first_attempt_);
    record_.next_seq = keeper_.next_seq();
    if (recorder_) {
      const auto progress = recorder_->progress();
      record_.training_iteration = progress.training_iteration;
      if (!recorder_->last().empty()) record_.metrics = recorder_->last();
    }
    record_.time_total_s = time_before_ + Seconds(now() - started_).count();
    if (plan_.record) directory_.write_run_json(record_.to_value());
    recorded_ = true;
  }

  // ------------------------------------------------------------ events

  std::optional<Event> take_event() {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  void handle(Event event) {
    auto [next, actions] = step(std::move(state_), std::move(event), now());
    state_ = std::move(next);
    for (Action& action : actions) std::visit([&](auto& each) { guarded([&] { act(each); }); }, action);
    if (recorder_->take_stop()) events_.push_back(StopWanted{});
  }

  /// What goes wrong in the driver itself is an event too: callbacks end the run, a refusing disk is a failure like any
  /// other.
  template <class Body>
  void guarded(Body&& body) {
    Failure failure;
    bool fatal = true;
    try {
      return body();
    } catch (const CallbackError& error) {
      failure.kind = FailureKind::callback;
      failure.message = error.what();
    } catch (const StorageError& error) {
      failure.kind = FailureKind::storage;
      failure.message = error.what();
      fatal = false;
    } catch (const EngineError&) {
      throw;  // the agent is gone: receive() and the caller know what to do
    } catch (const std::exception& error) {
      failure.message = error.what();
    }
    events_.push_back(DriverFailed{std::move(failure), fatal});
  }

  void wait() {
    note_absence();
    std::optional<Instant> deadline = next_deadline(state_);
    const auto round_due = rendezvous_ ? rendezvous_->deadline() : std::nullopt;
    const auto end_due = unbegun_ ? std::optional(unbegun_->ends) : std::nullopt;
    for (const auto& other : {recorder_->flush_due(), save_due_, round_due, end_due})
      if (other && (!deadline || *other < *deadline)) deadline = other;
    int timeout = -1;
    if (deadline) timeout = static_cast<int>(std::max(0.0, std::ceil(Seconds(*deadline - now()).count() * 1000)));
    std::array<pollfd, 3> fds{{{agent_.fd(), POLLIN, 0},
                               {plan_.signals != nullptr ? plan_.signals->fd() : -1, POLLIN, 0},
                               {rendezvous_ ? rendezvous_->fd() : -1, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), timeout) < 0 && errno != EINTR)
      throw EngineError("[driver] poll: " + std::string(strerror(errno)));
    listened_at_ = now();
    if (fds[1].revents != 0) take_signals();
    if (fds[0].revents != 0) receive();
    const Instant time = now();
    if (fds[2].revents != 0 || (round_due && time >= *round_due)) take_news(rendezvous_->serve(time));
    if (recorder_->flush_due() && time >= *recorder_->flush_due()) guarded([&] { recorder_->flush(); });
    if (save_due_ && time >= *save_due_) {
      save_due_.reset();
      guarded([&] { save_record(); });
    }
    if (unbegun_ && time >= unbegun_->ends)
      events_.push_back(AttemptEnded{std::exchange(unbegun_, std::nullopt)->attempt});
    note_absence();
    if (const auto due = next_deadline(state_); due && time >= *due && (is_drained() || time >= *due + kLongestBacklog))
      events_.push_back(Tick{});
  }

  /// A driver that was busy, in a callback perhaps, has not heard the workers: that time is no silence of theirs.
  void note_absence() {
    const Instant time = now();
    const Seconds away(listened_at_ == Instant{} ? 0 : Seconds(time - listened_at_).count());
    listened_at_ = time;
    if (away > kShortAbsence) handle(WasAway{away});
  }

  /// Whether all that the agent has said is heard: a heartbeat may stand behind what is not.
  bool is_drained() const {
    pollfd item{agent_.fd(), POLLIN, 0};
    return poll(&item, 1, 0) == 0;
  }

  void take_signals() {
    while (const int signal = plan_.signals->take()) {
      signal_ = signal;
      console_.line(state_.interrupts == 0 ? "lockstep: stopping; once more to kill" : "lockstep: killing the workers");
      events_.push_back(Interrupt{});
    }
  }

  void receive() {
    try {
      // One read's worth at a time: what it holds becomes events, and they are handled before more is read.
      while (auto message = agent_.receive()) {
        std::visit([&](auto& each) { on(each); }, *message);
        for (auto event = take_event(); event && !end_; event = take_event()) handle(std::move(*event));
        if (end_) return;
      }
    } catch (const CannotStart&) {
      throw;
    } catch (const Error& error) {
      agent_usable_ = false;
      events_.push_back(AgentLost{error.what()});
    }
  }

  void on(wire::AgentReady& message) {
    node_ = message.node;
    events_.push_back(AgentIsReady{});
  }
  void on(wire::AgentFailed& message) {
    agent_usable_ = false;
    if (state_.phase == Phase::idle) throw CannotStart(message.message);
    events_.push_back(AgentLost{std::move(message.message)});
  }
  void on(wire::WorkerAlive& m) { events_.push_back(Alive{m.attempt, m.rank}); }
  void on(wire::KeptWorkers&) {}  // nobody asked
  void on(wire::WorkerStarted& m) {
    events_.push_back(WorkerStarted{m.attempt, m.rank, m.pid});
    if (m.attempt == state_.attempt && absences_.is_needless(m.rank)) agent_.send(wire::StopWorker{m.attempt, m.rank});
  }
  void on(wire::LogText& m) {
    guarded([&] { logs_->append(m.rank, m.text); });
    console_.output(m.rank, m.text, now());
  }
  void on(wire::WorkerStacks& m) { events_.push_back(WorkerStacks{m.attempt, m.rank, std::move(m.text)}); }
  void on(wire::WorkerExited& m) {
    const bool by_us = m.stopped_by_us || (m.attempt == state_.attempt && absences_.is_needless(m.rank));
    events_.push_back(WorkerExited{m.attempt, m.rank, m.code, m.signal, m.out_of_memory, by_us});
  }
  void on(wire::AttemptEnded& m) { events_.push_back(AttemptEnded{m.attempt}); }

  void on(wire::FromWorker& m) {
    if (m.attempt != state_.attempt)
      return log_debug("a message of attempt " + std::to_string(m.attempt) + " is refused");
    try {
      auto message = wire::decode<wire::WorkerToDriver>(m.message);
      std::visit([&](auto& each) { from_worker(m.attempt, m.rank, each); }, message);
    } catch (const std::exception& error) {
      not_understood(m.attempt, m.rank, error);
    }
  }
  void not_understood(int attempt, int rank, const std::exception& error) {
    Failure failure;
    failure.message = std::string("the driver does not understand what the worker sent: ") + error.what();
    events_.push_back(WorkerFailed{attempt, rank, std::move(failure)});
  }
  void from_worker(int attempt, int rank, wire::WorkerReady& m) {
    const metrics::Place place{m.hostname, m.node_ip, m.pid};
    recorder_->function_started(rank, place);
    if (plan_.replace_workers) absences_.note_place(rank, place);
    pids_.at(static_cast<std::size_t>(rank)) = m.pid;
    if (state_.announced)
      say_of_workers("rank " + std::to_string(rank) + " running (pid " + std::to_string(m.pid) + ")");
    events_.push_back(WorkerRuns{attempt, rank, m.pid});
  }
  void from_worker(int attempt, int rank, wire::Reports& m) {
    for (wire::Report& report : m.reports) {
      if (report.metrics.size() > static_cast<std::size_t>(plan_.options.run.max_report_size))
        throw wire::WireError("a report of " + human_size(static_cast<double>(report.metrics.size())) + " where " +
                              human_size(plan_.options.run.max_report_size) + " are the most");
      report.index = absences_.counted(rank, report.index);
    }
    events_.push_back(Reported{attempt, rank, std::move(m.reports)});
    pass_reports_of_new(kMostMissed);
  }
  void from_worker(int attempt, int rank, wire::CheckpointWritten& m) {
    m.report = absences_.counted(rank, m.report);
    events_.push_back(PartWritten{attempt, rank, std::move(m)});
  }
  void from_worker(int attempt, int rank, wire::CheckpointWanted& m) {
    pass_reports_of_new(1);
    events_.push_back(CheckpointWanted{attempt, rank, absences_.counted(rank, m.report)});
  }
  void from_worker(int, int, wire::StopWanted&) { events_.push_back(StopWanted{}); }
  void from_worker(int attempt, int rank, wire::ReportsHeld& m) {
    events_.push_back(ReportsHeld{attempt, rank, absences_.counted(rank, m.reports)});
  }
  void from_worker(int attempt, int rank, wire::Settled&) { events_.push_back(Settled{attempt, rank}); }
  void from_worker(int attempt, int rank, wire::Heartbeat& m) {
    events_.push_back(HeartBeat{attempt, rank, m.progress});
  }
  void from_worker(int attempt, int rank, wire::MeetingEntered& m) {
    events_.push_back(MeetingEntered{attempt, rank, std::move(m)});
  }
  void from_worker(int attempt, int rank, wire::WorkerFinished& m) {
    finish_needless(rank);
    values_.at(static_cast<std::size_t>(rank)) = std::move(m.value);
    events_.push_back(WorkerFinished{attempt, rank});
  }
  void from_worker(int attempt, int rank, wire::WorkerFailed& m) {
    Failure failure = failure_from_value(m.failure);
    failure.log_lines = logs_->last_lines(rank);
    events_.push_back(WorkerFailed{attempt, rank, std::move(failure)});
  }

  // ------------------------------------------------------------ ranks of an elastic job that are not there yet

  void take_news(const RendezvousNews& news) {
    for (const int rank : news.stuck) events_.push_back(RankStuck{state_.attempt, rank});
    for (const int rank : news.left) guarded([&] { leave(rank); });
    for (const int rank : news.joined) guarded([&] { join(rank); });
    for (const int rank : news.needless) end_needless(rank);
  }

  void leave(int rank) {
    console_.line("lockstep: the other ranks go on until rank " + std::to_string(rank) + " is there");
    recorder_->finished(rank);  // their reports do not wait for it
  }

  void join(int rank) {
    console_.line("lockstep: rank " + std::to_string(rank) + " takes part again");
    pass_reports(rank, 1);
    recorder_->restarted(rank);
    recorder_->function_started(rank, absences_.place(rank));
  }

  /// Counts the reports that others have made and a new rank has not, when they are so many, as made by it too, with
  /// nothing in them: it will not be behind when it takes part, and until then nobody waits for a checkpoint of it.
  void pass_reports(int rank, int when) {
    const int most = std::ranges::max(state_.ranks, {}, &RankState::reports).reports;
    const int missed = most - state_.ranks.at(static_cast<std::size_t>(rank)).reports;
    if (missed < when) return;
    absences_.note_missed(rank, missed);
    handle(Reported{state_.attempt, rank, std::vector<wire::Report>(static_cast<std::size_t>(missed))});
  }
  void pass_reports_of_new(int when) {
    for (int rank = 0; rank < static_cast<int>(state_.ranks.size()); ++rank)
      if (is_new(rank)) pass_reports(rank, when);
  }
  /// Whether it replaces a rank that died, and has not found the others yet.
  bool is_new(int rank) const { return rendezvous_ && rendezvous_->is_fresh(rank) && absences_.replaces(rank); }

  /// All others have returned, and wait for this one to leave with them.
  void end_needless(int rank) {
    console_.line("lockstep: rank " + std::to_string(rank) + " is not needed: the others have finished");
    absences_.note_needless(rank);
    events_.push_back(MeetingEntered{state_.attempt, rank, {state_.meeting.number, kLeavingTime.count(), {}}});
    agent_.send(wire::StopWorker{state_.attempt, rank});
  }
  /// When the last of the others finishes: all that they reported is known then. One that took part later is not
  /// behind: where it began to count may be a report too early, which was on its way to us.
  void finish_needless(int last) {
    for (int rank = 0; rank < state_.policy.world_size; ++rank)
      if (rank != last && !state_.ranks.at(static_cast<std::size_t>(rank)).finished && !absences_.is_needless(rank))
        return;
    for (int rank = 0; rank < state_.policy.world_size; ++rank) {
      if (absences_.replaces(rank)) pass_reports(rank, 1);
      if (absences_.is_needless(rank)) events_.push_back(WorkerFinished{state_.attempt, rank});
    }
  }

  // ------------------------------------------------------------ actions

  void act(StartWorkers& action) {
    try {
      agent_.send(prepare_attempt(action.attempt));
    } catch (const store::NoUsableCheckpoint& error) {
      cannot_begin(error, true);  // no other attempt would fare better
    } catch (const StorageError& error) {
      cannot_begin(error, false);
    }
  }

  /// Nothing was started, so nothing will be heard of this attempt: its end is our own to tell. What refused gets some
  /// time until the next one.
  void cannot_begin(const StorageError& error, bool fatal) {
    Failure failure;
    failure.kind = FailureKind::storage;
    failure.message = error.what();
    events_.push_back(DriverFailed{std::move(failure), fatal});
    const int most = state_.policy.max_failures;
    const bool again = !fatal && (most < 0 || state_.failed_attempts < most);
    unbegun_ = {state_.attempt, again ? now() + kUntilNextBegin : now()};
  }

  wire::StartAttempt prepare_attempt(int attempt) {
    logs_->begin_attempt(attempt, wall_now());
    console_.end_lines();
    pids_.assign(static_cast<std::size_t>(state_.policy.world_size), 0);
    finished_ = 0;
    // Who restores a run and gives a checkpoint has said where to begin when the run's own are of no use.
    if (plan_.record)
      keeper_.begin_attempt(state_.policy.world_size, plan_.restore && plan_.options.resume_from.has_value());
    values_.assign(static_cast<std::size_t>(state_.policy.world_size), {});
    const std::optional<Checkpoint> resume = keeper_.latest() ? keeper_.latest() : plan_.options.resume_from;
    const metrics::Progress from{number_in<long>(keeper_.latest_metrics(), "training_iteration"),
                                 time_before_ + Seconds(now() - started_).count()};
    recorder_->begin_attempt(state_.policy.world_size, from);
    if (rendezvous_) rendezvous_->begin_attempt();
    absences_.clear();
    wire::StartAttempt start;
    start.attempt = attempt;
    start.payload = plan_.payload;
    const Value begin = common_begin(attempt, resume);
    for (int rank = 0; rank < state_.policy.world_size; ++rank) start.workers.push_back({rank, begin_of(begin, rank)});
    save_record();
    return start;
  }

  Value common_begin(int attempt, const std::optional<Checkpoint>& resume) const {
    wire::Begin begin = begin_of_all(plan_, record_, attempt);
    begin.first_seq = keeper_.next_seq();
    begin.answered = recorder_->decides_end();
    auto given = given_of(resume);
    begin.checkpoint = std::move(given.path);
    begin.checkpoint_files = std::move(given.files);
    return wire::to_value(begin);
  }

  Value begin_of(Value begin, int rank) const {
    begin["type"] = wire::Begin::kName;
    begin["rank"] = rank;
    begin["local_rank"] = rank;
    const auto at = static_cast<std::size_t>(rank);
    if (at < plan_.rank_env.size())
      for (const auto& [name, value] : plan_.rank_env[at]) begin["env"][name] = value;
    if (rendezvous_) begin["extra"]["rendezvous"] = rendezvous_->place(rank);
    return begin;
  }

  void act(StopWorkers& action) {
    agent_.send(wire::StopAttempt{action.attempt, action.interrupt, action.grace.count()});
  }
  void act(StopWorker& action) { agent_.send(wire::StopWorker{action.attempt, action.rank}); }

  template <class M>
  void tell(int rank, const M& message) {
    agent_.send(wire::ToWorker{state_.attempt, rank, wire::encode(message)});
  }
  void act(SettleWorker& action) { tell(action.rank, wire::Settle{}); }
  void act(InterruptWorker& action) { tell(action.rank, wire::Interrupt{}); }
  void act(HoldReports& action) { tell(action.rank, wire::HoldReports{}); }
  void act(EndAfter& action) { tell(action.rank, wire::EndAfter{absences_.as_it_counts(action.rank, action.reports)}); }
  void act(GoOn& action) { tell(-1, wire::GoOn{action.reports}); }

  void act(ReplaceWorker& action) {
    if (const auto why = rendezvous_ ? rendezvous_->lose(action.rank, now()) : std::nullopt) {
      action.failure.message += "; it cannot be replaced alone: " + *why;
      return events_.push_back(CannotReplace{action.attempt, action.counts, std::move(action.failure)});
    }
    note(action.failure);
    console_.warning(describe({action.failure}) + "; it is started again, the other ranks go on");
    recorder_->restarted(action.rank);
    absences_.begin(action.rank);
    if (rendezvous_ && rendezvous_->is_away(action.rank)) recorder_->finished(action.rank);
    const auto latest = keeper_.begin_rank(action.rank);
    Value begin = begin_of(common_begin(action.attempt, latest ? latest : plan_.options.resume_from), action.rank);
    begin["first_report"] = action.first_report;
    begin["first_meeting"] = action.first_meeting;
    agent_.send(wire::StartWorker{action.attempt, {action.rank, std::move(begin)}});
    save_record();
  }

  /// Completes a failure and keeps it for the record.
  void note(Failure& failure) {
    if (failure.node.empty()) failure.node = node_;
    if (failure.rank >= 0 && failure.log_lines.empty()) failure.log_lines = logs_->last_lines(failure.rank);
    if (failure.kind == FailureKind::signal) failure.traceback = logs_->crash(failure.rank);
    record_.failures.push_back(failure);
  }

  void act(KeepWorkers& action) { agent_.send(wire::KeepWorkers{action.attempt}); }
  void act(TakeStacks& action) { agent_.send(wire::DumpStacks{action.attempt, action.timeout.count()}); }

  void act(SaveStacks& action) {
    if (!plan_.record) return;
    std::string text;
    for (std::size_t rank = 0; rank < action.by_rank.size(); ++rank)
      text += "==== rank " + std::to_string(rank) + " ====\n" + action.by_rank[rank] + "\n";
    const auto path = stacks_file(action.attempt);
    files_.replace_file(path, text);
    console_.warning("the stacks of all ranks are in " + path.string());
  }

  std::filesystem::path stacks_file(int attempt) const {
    return directory_.logs() / ("stacks_attempt_" + std::to_string(attempt) + ".txt");
  }

  void act(Deliver& action) {
    try {
      recorder_->deliver(action.rank, action.reports);
    } catch (const wire::WireError& error) {
      return not_understood(state_.attempt, action.rank, error);
    }
    const auto is_its_own = [](const wire::Report& each) { return each.has_checkpoint || !each.metrics.empty(); };
    if (std::ranges::any_of(action.reports, is_its_own))
      keeper_.let_go(action.rank);  // who reports has read what it resumes from
    if (!save_due_) save_due_ = now() + 1s;
    if (recorder_->take_stop()) events_.push_back(StopWanted{});  // before the report is answered
    if (action.rank == 0 && recorder_->decides_end())
      events_.push_back(Delivered{state_.attempt, state_.ranks.front().reports});
  }

  void act(Commit& action) {
    committed_.reset();
    recorder_->flush();  // a checkpoint on disk has its report there too
    committed_ =
        keeper_.commit(action, state_.attempt, state_.policy.world_size, recorder_->take_metrics(action.report));
  }

  void act(AnnounceCommit&) {
    if (!committed_) return;  // the disk refused
    keeper_.retain();
    save_record();
    const Value metrics = keeper_.latest_metrics();
    recorder_->call("on_checkpoint", [&](Callback& callback) { callback.on_checkpoint(*committed_, metrics); });
  }

  void act(GiveCheckpoint& action) { tell(action.rank, given_of(keeper_.hand_out(action.rank))); }

  void act(ReleaseMeeting& action) { tell(action.rank, action.done); }

  void act(AnnounceRunning& action) {
    say_of_workers(running_text(pids_));
    recorder_->call("on_attempt_started", [&](Callback& callback) { callback.on_attempt_started(action.attempt); });
  }

  void act(AnnounceFinished& action) {
    // One that was asked to stop says so by the same message.
    if (state_.phase != Phase::interrupted && ++finished_ == state_.policy.world_size)
      say_of_workers(counted_workers(finished_) + " finished");
    keeper_.let_go(action.rank);
    recorder_->finished(action.rank);
  }

  void act(AnnounceFailure& action) {
    for (Failure& failure : action.failures) note(failure);
    console_.warning("attempt " + std::to_string(action.failures.front().attempt) +
                     " failed: " + describe(action.failures) + (action.again ? "; starting again" : ""));
    recorder_->call("on_attempt_failed",
                    [&](Callback& callback) { callback.on_attempt_failed(action.failures, action.again); });
    save_record();
  }

  void act(Warn& action) { console_.warning(action.message); }

  void act(EndRun& action) { end_ = std::move(action); }

  // ------------------------------------------------------------ the end

  RunOutcome close() {
    Result result;
    record_.state = end_->outcome == Outcome::finished ? "finished"
                    : end_->outcome == Outcome::failed ? "failed"
                                                       : "interrupted";
    record_.finished = unix_seconds(wall_now());
    if (end_->outcome == Outcome::failed) {
      // The record holds them with the rank's last lines; a driver's own failure is not in it yet.
      const auto same = [](const Failure& a, const Failure& b) {
        return a.attempt == b.attempt && a.message == b.message;
      };
      if (record_.failures.empty() || !same(record_.failures.back(), end_->failures.back()))
        record_.failures.insert(record_.failures.end(), end_->failures.begin(), end_->failures.end());
      record_.error = describe(end_->failures);
      const FailureKind kind = end_->failures.front().kind;
      if (plan_.record && (kind == FailureKind::hang || kind == FailureKind::heartbeat))
        record_.error += "\nthe stacks of all ranks are in " + stacks_file(end_->failures.front().attempt).string();
    }
    drop_partials();
    finish_files();
    result.path = directory_.path();
    result.state = record_.state;
    result.config = plan_.options.config;
    result.metrics = recorder_->last().empty() ? record_.metrics : recorder_->last();
    result.checkpoint = keeper_.latest();
    result.best_checkpoints = keeper_.best();
    result.failures = record_.failures;
    result.error = record_.error;
    result.trainer = record_.trainer;
    try {
      recorder_->call_last("on_end", [&](Callback& callback) { callback.on_end(result); });
    } catch (const CallbackError& error) {
      if (result.error.empty()) note_late_failure(result, error);
    }
    console_.finish();
    if (end_->outcome == Outcome::interrupted && !pids_.empty() && finished_ < state_.policy.world_size)
      say_of_workers(counted_workers(state_.policy.world_size - finished_) + " stopped");
    say("lockstep: run " + in_quotes(record_.name) + " " + record_.state + " after " +
        human_duration(Seconds(now() - started_).count()) + "; results in " + directory_.path().string());
    return {std::move(result), end_->outcome == Outcome::interrupted ? signal_ : 0, agent_usable_, std::move(values_)};
  }

  /// What was not committed is of no use to anybody, and a full disk needs the room.
  void drop_partials() {
    if (!plan_.record || end_->outcome == Outcome::finished) return;
    try {
      directory_.remove_partials();
    } catch (const StorageError& error) {
      log_debug(error.what());  // the run's own error says more
    }
  }

  /// What cannot be closed must not keep the rest from being closed, least of all the record.
  void finish_files() {
    closing([&] { recorder_->finish(); });
    keeper_.let_go_all();
    closing([&] {
      if (plan_.record) keeper_.retain();
    });
    closing([&] { save_record(); });
  }

  template <class Body>
  void closing(Body&& body) {
    try {
      body();
    } catch (const StorageError& error) {
      if (record_.state != "finished") return console_.warning(error.what());
      Failure failure;
      failure.kind = FailureKind::storage;
      failure.message = error.what();
      failure.attempt = state_.attempt;
      note(failure);
      record_.state = "failed";
      record_.error = describe({failure});
    }
  }

  /// The run ends without an outcome: what the caller is told stands in the record too.
  void leave_record(const std::exception& error) {
    record_.state = "failed";
    if (record_.error.empty()) record_.error = error.what();
    record_.finished = unix_seconds(wall_now());
    try {
      save_record();
    } catch (const StorageError&) {
      // The caller's error is the cause.
    }
  }

  void note_late_failure(Result& result, const CallbackError& error) {
    Failure failure;
    failure.kind = FailureKind::callback;
    failure.message = error.what();
    record_.failures.push_back(failure);
    record_.state = result.state = "failed";
    record_.error = result.error = error.what();
    result.failures = record_.failures;
    save_record();
  }

  const RunPlan& plan_;
  Console console_;
  AgentLink agent_;
  sys::PrivateFiles files_;
  store::RunDirectory directory_;
  CheckpointKeeper keeper_;
  RunRecord record_;
  RunState state_;
  std::optional<Recorder> recorder_;
  std::optional<RankLogs> logs_;
  std::optional<Rendezvous> rendezvous_;
  std::deque<Event> events_;
  std::optional<Checkpoint> committed_;  ///< by the last Commit
  std::optional<EndRun> end_;
  std::optional<Instant> save_due_;
  struct Unbegun {
    int attempt;
    Instant ends;
  };
  std::optional<Unbegun> unbegun_;  ///< an attempt that could not be begun
  Instant started_{};
  Instant listened_at_{};  ///< until when the workers' silence is their own
  std::string node_;
  std::vector<int> pids_;  ///< by rank, of the attempt's workers
  int finished_ = 0;       ///< functions of the attempt that returned, not being asked to
  Absences absences_;
  std::vector<Bytes> values_;  ///< by rank: what the attempt's functions returned
  double time_before_ = 0;
  int first_attempt_ = 0;
  int signal_ = 0;
  bool agent_usable_ = true;
  bool recorded_ = false;  ///< run.json is ours, and tells of this run
};

}  // namespace

RunOutcome run(const RunPlan& plan, int agent) { return RunLoop(plan, agent).run(); }

}  // namespace lockstep::driver
