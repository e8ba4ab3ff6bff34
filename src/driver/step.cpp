#include "driver/step.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/failures.h"
#include "driver/rules.h"

namespace lockstep::driver {
namespace {

/// A rank that others have left behind by so many reports is worth a word while the run goes on.
constexpr int kFarBehind = 1000;
/// The part of the hang timeout after which a rank is nearly late.
constexpr double kNearly = 0.9;
/// When the others have made their last report, a rank that does not report as they do gets so much time to end too.
constexpr auto kLaggardsTime = 1s;

/// Whether a rank can go on only when others do: they, not it, are to be watched for progress.
bool waits(const RunState& state, int rank) {
  return state.meeting.present.contains(rank) || state.ranks[static_cast<std::size_t>(rank)].wants;
}

/// One step: the state it changes and the actions it gathers.
struct Step {
  RunState& state;
  Instant now;
  std::vector<Action> actions;

  template <class A>
  void act(A action) {
    actions.emplace_back(std::move(action));
  }

  RankState& rank(int number) { return state.ranks[static_cast<std::size_t>(number)]; }

  /// Whether an event belongs to the attempt whose workers live now.
  bool current(int attempt, int number = 0) const {
    return attempt == state.attempt && number >= 0 && number < static_cast<int>(state.ranks.size()) && live();
  }
  bool live() const { return state.phase != Phase::idle && state.phase != Phase::ended; }
  /// The one that runs, or is about to.
  int attempt_now() const { return state.phase == Phase::idle ? state.attempt + 1 : state.attempt; }

  void start_attempt() {
    ++state.attempt;
    state.phase = Phase::attempting;
    state.ranks.assign(static_cast<std::size_t>(state.policy.world_size), RankState{});
    state.failures.clear();
    state.parts.clear();
    state.committed = -1;
    state.meeting = {};
    state.ending.begin_attempt();
    state.saving = {};
    state.deadline = Instant::max();
    state.hung.clear();
    state.warned_behind = false;
    state.announced = false;
    act(StartWorkers{state.attempt});
  }

  void stop(bool interrupt) {
    act(StopWorkers{state.attempt, interrupt, interrupt ? state.policy.interrupt_grace : Seconds{0}});
  }

  /// The first failure kills the rest, when what they had reported is written; what else arrives until all are gone is
  /// kept beside it.
  void fail(Failure failure) {
    state.failures.push_back(std::move(failure));
    if (state.phase != Phase::attempting && state.phase != Phase::diagnosing) return;
    state.phase = Phase::saving;
    state.saving.since = now;
    state.deadline = now + ticks(state.policy.settling_time);
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (may_write(state, i)) state.saving.unsettled.insert(i);
    if (state.saving.unsettled.empty()) return;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i) {
      if (state.saving.unsettled.contains(i)) {
        act(SettleWorker{i});
      } else if (is_active(state, i)) {
        rank(i).stopped = true;
        act(StopWorker{state.attempt, i});
      }
    }
  }

  void go_on_saving() {
    if (state.phase != Phase::saving) return;
    std::erase_if(state.saving.unsettled, [&](int number) { return !is_active(state, number); });
    if (writes_what_counts(state)) state.deadline = state.saving.since + ticks(state.policy.saving_time);
    if (!state.saving.unsettled.empty() && now < state.deadline) return;
    state.phase = Phase::stopping;
    state.deadline = Instant::max();
    stop(false);
  }

  void on(Settled event) {
    if (current(event.attempt, event.rank)) state.saving.unsettled.erase(event.rank);
  }

  void end(Outcome outcome) {
    state.phase = Phase::ended;
    state.deadline = Instant::max();
    act(EndRun{outcome, state.failures});
  }

  // ------------------------------------------------------------ agent

  void on(AgentIsReady) {
    if (state.phase == Phase::idle) start_attempt();
  }

  void on(AgentLost event) {
    if (state.phase == Phase::ended) return;
    Failure failure;
    failure.kind = FailureKind::node;
    failure.attempt = attempt_now();
    failure.message = std::move(event.message);
    state.failures.push_back(std::move(failure));
    act(AnnounceFailure{state.failures, false});
    end(Outcome::failed);
  }

  // ------------------------------------------------------------ workers come

  void on(WorkerStarted event) {
    if (!current(event.attempt, event.rank)) return;
    RankState& r = rank(event.rank);
    r.started = true;
    r.pid = event.pid;
    r.last_heartbeat = r.last_progress = now;
  }

  void on(WorkerRuns event) {
    if (!current(event.attempt, event.rank)) return;
    RankState& r = rank(event.rank);
    r.running = true;
    r.last_heartbeat = r.last_progress = now;
    if (state.announced && state.ending.wanted) act(HoldReports{event.rank});  // it replaces another
    if (state.announced || !std::ranges::all_of(state.ranks, &RankState::running)) return;
    state.announced = true;
    act(AnnounceRunning{state.attempt});
    if (state.ending.wanted) hold_reports();
  }

  void on(HeartBeat event) {
    if (!current(event.attempt, event.rank)) return;
    RankState& r = rank(event.rank);
    r.last_heartbeat = now;
    if (event.progress != r.progress) {
      r.progress = event.progress;
      r.last_progress = now;
    }
  }

  void on(Alive event) {
    if (current(event.attempt, event.rank)) rank(event.rank).last_heartbeat = now;
  }

  void on(WasAway event) {
    for (RankState& r : state.ranks) {
      r.last_heartbeat = std::min(now, r.last_heartbeat + ticks(event.time));
      r.last_progress = std::min(now, r.last_progress + ticks(event.time));
    }
  }

  // ------------------------------------------------------------ reports and checkpoints

  void on(Reported event) {
    if (!current(event.attempt, event.rank)) return;
    RankState& r = rank(event.rank);
    r.last_heartbeat = r.last_progress = now;
    r.reports += static_cast<int>(event.reports.size());
    for (const auto& report : event.reports)
      if (report.has_checkpoint) r.checkpoint_reports.insert(report.index);
    act(Deliver{event.rank, std::move(event.reports)});
    if (state.policy.keep_all_ranks) commit_what_is_whole();
    warn_behind(kFarBehind);
    watch_laggards();
  }

  void on(PartWritten event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).last_progress = now;
    state.parts[event.written.report].push_back({event.rank, std::move(event.written)});
    commit_what_is_whole();
  }

  /// With all ranks kept, a checkpoint waits for every running rank to have made its report.
  bool is_whole(int report) const {
    const auto& parts = state.parts.at(report);
    if (!state.policy.keep_all_ranks) return true;
    for (std::size_t i = 0; i < state.ranks.size(); ++i) {
      const RankState& r = state.ranks[i];
      if (!r.finished && r.reports <= report) return false;
      const bool written =
          std::ranges::any_of(parts, [&](const Part& part) { return part.rank == static_cast<int>(i); });
      if (r.checkpoint_reports.contains(report) && !written) return false;
    }
    return true;
  }

  void commit_what_is_whole() {
    while (!state.parts.empty() && is_whole(state.parts.begin()->first)) {
      auto [report, parts] = std::move(*state.parts.begin());
      state.parts.erase(state.parts.begin());
      for (RankState& r : state.ranks) r.checkpoint_reports.erase(report);
      std::ranges::sort(parts, {}, &Part::rank);
      if (auto clash = same_file_twice(report, parts)) {
        if (state.phase == Phase::attempting) fail(std::move(*clash));
        continue;
      }
      act(Commit{report, std::move(parts)});
      state.committed = report;
      give_committed();  // first: nobody need wait for what comes with a commit
      act(AnnounceCommit{});
    }
  }

  // ------------------------------------------------------------ checkpoints that ranks ask for

  void on(CheckpointWanted event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).wants = event.report;
  }

  /// Whether the checkpoint of a report may still come: a rank that has a part in it writes, or is on its way to that
  /// report.
  bool may_come(int report) const {
    const std::size_t writers = state.policy.keep_all_ranks ? state.ranks.size() : 1;
    for (std::size_t i = 0; i < writers; ++i) {
      const RankState& r = state.ranks[i];
      const int number = static_cast<int>(i);
      if (!unwritten(state, number).empty() || (!r.finished && r.reports <= report && !waits(state, number)))
        return true;
    }
    return false;
  }

  void give_checkpoint(int number) {
    rank(number).wants.reset();
    rank(number).last_progress = now;
    act(GiveCheckpoint{number});
  }

  void give_committed() {
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (rank(i).wants && *rank(i).wants <= state.committed) give_checkpoint(i);
  }

  /// Nobody waits for a checkpoint that will never be made: ranks may report unequally.
  void answer_wants() {
    if (!live()) return;
    give_committed();
    std::vector<int> in_vain;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (rank(i).wants && !may_come(*rank(i).wants)) in_vain.push_back(i);
    for (const int i : in_vain) give_checkpoint(i);
  }

  std::optional<Failure> same_file_twice(int report, const std::vector<Part>& parts) const {
    std::map<std::string, int> owner;
    for (const Part& part : parts) {
      std::vector<std::string> names;
      for (const auto& file : part.written.files) names.push_back(file.name);
      for (const auto& [name, contents] : part.written.contents) names.push_back(name);
      for (const auto& name : names) {
        const auto [found, fresh] = owner.emplace(name, part.rank);
        if (fresh) continue;
        Failure failure;
        failure.kind = FailureKind::storage;
        failure.rank = part.rank;
        failure.attempt = state.attempt;
        failure.message = "[checkpoint] ranks " + std::to_string(found->second) + " and " + std::to_string(part.rank) +
                          " both wrote " + in_quotes(name) + " into the checkpoint of report " +
                          std::to_string(report) + "; with keep_all_ranks every rank's files need names of their own";
        return failure;
      }
    }
    return std::nullopt;
  }

  void warn_behind(int distance) {
    if (state.warned_behind) return;
    const auto most = std::ranges::max(state.ranks, {}, &RankState::reports).reports;
    std::vector<int> behind;
    for (std::size_t i = 0; i < state.ranks.size(); ++i)
      if (most - state.ranks[i].reports >= distance) behind.push_back(static_cast<int>(i));
    if (behind.empty()) return;
    state.warned_behind = true;
    const int least = rank(behind.front()).reports;
    act(Warn{std::string(behind.size() == 1 ? "rank " : "ranks ") + listed(behind) +
             (behind.size() == 1 ? " is" : " are") + " behind: " + std::to_string(least) +
             " reports where another rank made " + std::to_string(most) +
             "; call session.report equally often on every rank"});
  }

  // ------------------------------------------------------------ meetings

  void on(MeetingEntered event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).last_progress = now;
    Meeting& meeting = state.meeting;
    if (event.entered.meeting != meeting.number) return refuse_latecomer(event);
    meeting.present.insert(event.rank);
    if (event.rank == 0) meeting.value = std::move(event.entered.value);
    const Instant deadline = now + ticks(Seconds(event.entered.timeout));
    if (deadline < meeting.deadline) {
      meeting.deadline = deadline;
      meeting.timeout = Seconds(event.entered.timeout);
    }
    settle_meeting();
  }

  /// Its meeting has failed for the others already. When all have been told, their next one is the same again.
  void refuse_latecomer(const MeetingEntered& event) {
    const std::string why = state.phase == Phase::interrupted ? "the run is being stopped"
                                                              : "rank " + std::to_string(event.rank) +
                                                                    " came too late to a barrier or broadcast: the "
                                                                    "other ranks wait no longer";
    act(ReleaseMeeting{event.rank, {event.entered.meeting, "[session] " + why, {}}});
  }

  std::vector<int> missing_from_meeting() const {
    std::vector<int> missing;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (!state.meeting.present.contains(i)) missing.push_back(i);
    return missing;
  }

  void settle_meeting() {
    Meeting& meeting = state.meeting;
    if (meeting.present.empty()) return;
    const auto missing = missing_from_meeting();
    const std::string who = std::string(missing.size() == 1 ? "rank " : "ranks ") + listed(missing);
    std::string error;
    if (!missing.empty()) {
      std::vector<int> left;
      for (const int i : missing)
        if (rank(i).finished) left.push_back(i);
      if (!left.empty() && state.ending.after) end_all(meeting.present);  // they have been left as the run ended
      if (!left.empty())
        error = "[session] " + std::string(left.size() == 1 ? "rank " : "ranks ") + listed(left) +
                " ended without entering this barrier or broadcast; missing: " + who;
      else if (now >= meeting.deadline)
        error = "[session] waited " + human_duration(meeting.timeout.count()) +
                " in a barrier or broadcast; missing: " + who;
      else
        return;
    }
    release_meeting(error);
  }

  void release_meeting(const std::string& error) {
    Meeting& meeting = state.meeting;
    for (const int i : meeting.present) {
      rank(i).last_progress = now;
      act(ReleaseMeeting{i, {meeting.number, error, error.empty() ? meeting.value : Bytes{}}});
    }
    const int number = meeting.number;
    meeting = {};
    meeting.number = number + 1;
  }

  // ------------------------------------------------------------ ending early

  void on(StopWanted) {
    if (std::exchange(state.ending.wanted, true)) return;
    if (state.announced && state.phase == Phase::attempting) hold_reports();
  }

  void hold_reports() {
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (is_active(state, i)) act(HoldReports{i});
  }

  void on(Delivered event) {
    if (current(event.attempt) && !state.ending.wanted) act(GoOn{event.reports});
  }

  void on(ReportsHeld event) {
    if (!current(event.attempt, event.rank)) return;
    state.ending.held[event.rank] = event.reports;
    if (state.ending.after) return act(EndAfter{event.rank, *state.ending.after});
    choose_last_report();
  }

  void choose_last_report() {
    if (state.ending.after) return;
    state.ending.after = last_report(state);
    if (!state.ending.after) return;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (is_active(state, i)) act(EndAfter{i, *state.ending.after});
  }

  void watch_laggards() {
    Ending& ending = state.ending;
    if (!ending.laggards_told && waits_for_laggards(state))
      ending.laggards_end = std::min(ending.laggards_end, now + ticks(kLaggardsTime));
  }

  void end_all(const std::set<int>& ranks) {
    for (const int i : ranks)
      if (is_active(state, i)) act(InterruptWorker{i});
  }

  void end_laggards() {
    state.ending.laggards_told = true;
    state.ending.laggards_end = Instant::max();
    if (state.phase != Phase::attempting) return;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i)
      if (is_active(state, i) && rank(i).reports < *state.ending.after) act(InterruptWorker{i});
  }

  // ------------------------------------------------------------ workers go

  void on(WorkerFinished event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).finished = true;
    choose_last_report();
    watch_laggards();
    act(AnnounceFinished{event.rank});
    commit_what_is_whole();
    settle_meeting();
    if (state.phase != Phase::attempting || !std::ranges::all_of(state.ranks, &RankState::finished)) return;
    warn_behind(1);
    if (state.policy.keep_workers) act(KeepWorkers{state.attempt});
  }

  void on(WorkerFailed event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).failed = true;
    event.failure.rank = event.rank;
    event.failure.attempt = event.attempt;
    fail(std::move(event.failure));
  }

  void on(WorkerExited event) {
    if (!current(event.attempt, event.rank)) return;
    RankState& r = rank(event.rank);
    r.exited = true;
    if (r.finished && (event.code != 0 || event.signal != 0) && !event.stopped_by_us)
      act(Warn{"rank " + std::to_string(event.rank) + " finished its function, but then " +
               failure_of_exit(event).message});
    const bool by_us = event.stopped_by_us || (r.stopped && state.phase != Phase::attempting);
    if (!r.finished && !r.failed && !by_us) lose(event.rank, failure_of_exit(event));
  }

  bool failures_are_left(int more) const {
    return state.policy.max_failures < 0 || state.failed_attempts + more <= state.policy.max_failures;
  }

  /// A rank is gone before its time: it is replaced, or the attempt has failed.
  void lose(int number, Failure failure) {
    const int counts = rank(number).stopped ? 0 : 1;
    if (counts == 0) failure = failure_of_stuck(state, number);
    const bool a_survivor = std::ranges::any_of(
        state.ranks, [](const RankState& r) { return r.started && !r.exited && !r.stopped && !r.failed; });
    const bool possible = state.policy.replace_workers && state.phase == Phase::attempting && a_survivor &&
                          failures_are_left(counts) && state.meeting.present.empty() &&
                          std::ranges::none_of(state.ranks, &RankState::finished);
    if (!possible) return fail(std::move(failure));
    state.failed_attempts += counts;
    RankState& anew = rank(number) = RankState{};
    state.ending.held.erase(number);
    anew.reports = std::ranges::max(state.ranks, {}, &RankState::reports).reports;
    act(ReplaceWorker{state.attempt, number, anew.reports, state.meeting.number, counts, std::move(failure)});
  }

  /// The attempt takes the failure, and its rank does not take another.
  void on(CannotReplace event) {
    if (!current(event.attempt)) return;
    state.failed_attempts -= event.counts;
    fail(std::move(event.failure));
  }

  void on(RankStuck event) {
    if (!current(event.attempt, event.rank) || state.phase != Phase::attempting) return;
    RankState& r = rank(event.rank);
    if (!r.started || r.exited || r.finished || r.failed || r.stopped) return;
    r.stopped = true;
    act(StopWorker{state.attempt, event.rank});
  }

  void on(AttemptEnded event) {
    if (!current(event.attempt)) return;
    if (state.phase == Phase::interrupted) return end(Outcome::interrupted);
    if (state.failures.empty()) {
      if (std::ranges::all_of(state.ranks, &RankState::finished)) return end(Outcome::finished);
      Failure failure;
      failure.attempt = state.attempt;
      failure.message = "the workers are gone, and none of them said why";
      state.failures.push_back(std::move(failure));
    }
    ++state.failed_attempts;
    const bool again = !state.fatal && failures_are_left(0);
    act(AnnounceFailure{state.failures, again});
    if (again)
      start_attempt();
    else
      end(Outcome::failed);
  }

  // ------------------------------------------------------------ silence

  /// Ranks past their deadline, the longest silent first.
  std::vector<int> silent_ranks(Seconds limit, Instant RankState::*last) const {
    std::vector<int> silent;
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i) {
      const RankState& r = state.ranks[static_cast<std::size_t>(i)];
      if (r.started && !r.finished && !r.failed && !r.exited && now - r.*last >= limit) silent.push_back(i);
    }
    std::ranges::stable_sort(silent, {}, [&](int i) { return state.ranks[static_cast<std::size_t>(i)].*last; });
    return silent;
  }

  std::vector<int> without_progress(Seconds limit) const {
    auto silent = silent_ranks(limit, &RankState::last_progress);
    std::erase_if(silent, [&](int i) { return waits(state, i); });
    return silent;
  }

  void look_for_silence() {
    state.hung = silent_ranks(state.policy.heartbeat_timeout, &RankState::last_heartbeat);
    state.hang_kind = FailureKind::heartbeat;
    if (state.hung.empty() && state.policy.hang_timeout) {
      // Ranks that work in step fall silent within a moment, the one that hangs not always first: those that are nearly
      // late are named with the one that is.
      if (!without_progress(*state.policy.hang_timeout).empty())
        state.hung = without_progress(kNearly * *state.policy.hang_timeout);
      state.hang_kind = FailureKind::hang;
    }
    if (state.hung.empty()) return;
    state.phase = Phase::diagnosing;
    state.deadline = now + ticks(state.policy.stacks_timeout + 1s);
    act(Warn{std::string(state.hung.size() == 1 ? "rank " : "ranks ") + listed(state.hung) +
             (state.hang_kind == FailureKind::hang ? " made no progress" : " sent no heartbeat") +
             " in time; taking stacks of all ranks"});
    act(TakeStacks{state.attempt, state.policy.stacks_timeout});
  }

  void on(WorkerStacks event) {
    if (!current(event.attempt, event.rank)) return;
    rank(event.rank).stacks = std::move(event.text);
    if (state.phase != Phase::diagnosing) return;
    if (std::ranges::all_of(state.ranks,
                            [](const RankState& r) { return r.exited || !r.started || !r.stacks.empty(); }))
      judge_silence();
  }

  void judge_silence() {
    std::vector<std::string> stacks;
    for (const RankState& r : state.ranks) stacks.push_back(r.stacks);
    act(SaveStacks{state.attempt, std::move(stacks), state.hung});
    for (Failure& failure : failures_of_silence(state, now)) fail(std::move(failure));
  }

  void on(Tick) {
    if (!live()) return;
    if (now >= state.meeting.deadline) settle_meeting();
    if (state.phase == Phase::diagnosing && now >= state.deadline) return judge_silence();
    if (now >= state.ending.laggards_end) end_laggards();
    if (state.phase == Phase::attempting) look_for_silence();
  }

  // ------------------------------------------------------------ the driver's own

  void on(Interrupt) {
    ++state.interrupts;
    switch (state.phase) {
      case Phase::ended:
        return;
      case Phase::idle:
        return end(Outcome::interrupted);
      case Phase::interrupted:
        return stop(false);
      case Phase::saving:
        state.phase = Phase::interrupted;
        state.deadline = Instant::max();
        return stop(false);
      case Phase::stopping:
        state.phase = Phase::interrupted;
        return;  // the workers are being killed already
      case Phase::attempting:
      case Phase::diagnosing:
        state.phase = Phase::interrupted;
        // A worker whose function does not run yet has nothing to end cleanly, and does not listen.
        stop(std::ranges::all_of(state.ranks, &RankState::running));
        return release_meeting("[session] the run is being stopped");
    }
  }

  void on(DriverFailed event) {
    if (state.phase == Phase::ended) return;
    state.fatal = state.fatal || event.fatal;
    event.failure.attempt = attempt_now();
    if (state.phase == Phase::idle) {
      state.failures.push_back(std::move(event.failure));
      act(AnnounceFailure{state.failures, false});
      return end(Outcome::failed);
    }
    // A run that is being interrupted and cannot keep its last checkpoint has failed after all.
    if (state.phase == Phase::interrupted) state.phase = Phase::stopping;
    fail(std::move(event.failure));
  }
};

}  // namespace

std::pair<RunState, std::vector<Action>> step(RunState state, Event event, Instant now) {
  Step step{state, now, {}};
  std::visit([&](auto& each) { step.on(std::move(each)); }, event);
  step.answer_wants();
  step.go_on_saving();
  auto actions = std::move(step.actions);
  return {std::move(state), std::move(actions)};
}

std::optional<Instant> next_deadline(const RunState& state) {
  if (state.phase == Phase::idle || state.phase == Phase::ended) return std::nullopt;
  Instant next = std::min({state.deadline, state.meeting.deadline, state.ending.laggards_end});
  if (state.phase == Phase::attempting) {
    for (int i = 0; i < static_cast<int>(state.ranks.size()); ++i) {
      const RankState& r = state.ranks[static_cast<std::size_t>(i)];
      if (!r.started || r.finished || r.failed || r.exited) continue;
      next = std::min(next, r.last_heartbeat + ticks(state.policy.heartbeat_timeout));
      if (state.policy.hang_timeout && !waits(state, i))
        next = std::min(next, r.last_progress + ticks(*state.policy.hang_timeout));
    }
  }
  if (next == Instant::max()) return std::nullopt;
  return next;
}

}  // namespace lockstep::driver
