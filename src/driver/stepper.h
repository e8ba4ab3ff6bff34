#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/actions.h"
#include "driver/events.h"
#include "driver/state.h"

namespace lockstep::driver {

/// One call of `step`: the state that it changes and the actions that it collects. Its functions are in step_*.cpp, by
/// subject.
struct Stepper {
  RunState& state;
  Instant now;
  std::vector<Action> actions{};

  template <class A>
  void act(A action) {
    actions.emplace_back(std::move(action));
  }

  int world_size() const { return static_cast<int>(state.ranks.size()); }
  RankState& rank(int number) { return state.ranks[static_cast<std::size_t>(number)]; }
  const RankState& rank(int number) const { return state.ranks[static_cast<std::size_t>(number)]; }
  /// Whether an event belongs to the attempt whose workers live now.
  bool current(int attempt, int number = 0) const {
    return attempt == state.attempt && number >= 0 && number < world_size() && live();
  }
  /// Whether workers of the attempt may live.
  bool live() const { return !state.open_nodes.empty() && state.phase != Phase::ended; }

  /// Whether nothing has ended the attempt yet.
  bool is_working() const { return state.phase == Phase::attempting || state.phase == Phase::diagnosing; }

  // step.cpp: failures, interrupts and the end
  void on(Settled event);
  void on(Interrupted);
  void on(CallbackInterrupted);
  void on(StopRequested event);
  void on(const PreemptionNoticed& event);
  Preemption preemption_of(const PreemptionNoticed& event) const;
  void end_preempted();
  void watch_preemption();
  Outcome outcome_of_stop() const;
  void on(DriverFailed event);
  void on(Tick);
  bool ends_at_once(Outcome outcome);
  void interrupt();
  void stop(bool interrupt);
  void give_up_open_nodes();
  void fail(Failure failure);
  void save_then_stop();
  void kill();
  void go_on_saving();
  void end(Outcome outcome);

  // step_attempts.cpp: attempts begin and end, on nodes that come and go
  void on(AgentIsReady event);
  void on(AgentLost event);
  void on(Placed event);
  void on(NotPlaced event);
  void on(StartFailed event);
  void on(AttemptEnded event);
  void enter_attempt();
  void start_attempt();
  void start_when_ready();
  void cannot_start(Failure failure, bool fatal);
  void lose_node(int node, Failure failure);
  void end_attempt();
  bool has_workers_on(int node) const;
  int attempt_now() const;
  bool failures_are_left(int more) const;
  int counted_as(const Failure& failure) const;

  // step_growth.cpp: elastic runs grow
  void on(RoomFound event);
  bool may_resize() const;
  bool may_grow() const;
  void leave_node(const PreemptionNoticed& event);
  void leave_or_end(int workers);
  void resize_now();
  void watch_leaving();
  void note_size();
  void look_for_room(bool at_checkpoint);
  void watch_room();
  void on(ReportsPaused event);
  void pause_all();
  void go_on_all();
  void move_gate();
  void watch_gate();
  void note_commit(int report);
  void expect_end();

  // step_workers.cpp: workers come and go
  void on(WorkerStarted event);
  void on(WorkerRuns event);
  void on(HeartBeat event);
  void on(Alive event);
  void on(WasAway event);
  void on(WorkerFinished event);
  void on(WorkerFailed event);
  void on(WorkerExited event);
  void finish(int number);
  void lose(int number, Failure failure);

  // step_absences.cpp: workers that are started alone, and what the others do without them
  void on(RankStuck event);
  void on(RankLeft event);
  void on(RankJoined event);
  void on(RankNeedless event);
  void on(CannotReplace event);
  void replace(int number, int counts, Failure failure);
  void catch_up(int number, int at_least);
  void catch_up_absent(int at_least);
  void finish_needless();

  // step_reports.cpp: reports, checkpoints, and who waits for them
  void on(Reported event);
  void on(PartWritten event);
  void on(Committed event);
  void on(CommitFailed event);
  void on(CheckpointWanted event);
  bool is_whole(int report) const;
  void commit_what_is_whole();
  void give_up_sparse_ranks();
  bool may_come(int report) const;
  void give_checkpoint(int number);
  void give_committed();
  void answer_wants();
  int most_reports() const;
  void warn_behind(int distance);

  // step_ending.cpp: runs that end early
  void on(StopWanted);
  void on(Delivered event);
  void on(ReportsHeld event);
  void hold_reports();
  void end_after(int number);
  void choose_last_report();
  void watch_laggards();
  void end_laggards();
  void end_all(const std::set<int>& ranks);

  // step_meetings.cpp: ranks that wait for each other
  void on(MeetingEntered event);
  void enter_meeting(int number, wire::MeetingEntered entered);
  void refuse_latecomer(int number, int meeting);
  void settle_meeting();
  void release_meeting(const std::string& error);

  // step_hooks.cpp: code of the driver's process that calls on the ranks
  void on(CallsAwaited event);
  void on(CallMade event);
  void on(HooksDone event);
  void on(HookFailed event);
  void run_hooks_when_due();

  // step_silence.cpp: ranks that hang
  void on(WorkerStacks event);
  std::vector<int> silent_ranks(Seconds limit, Instant RankState::*last) const;
  std::vector<int> without_progress(Seconds limit) const;
  void look_for_silence();
  void judge_silence();
};

}  // namespace lockstep::driver
