#include <algorithm>
#include <utility>

#include "driver/failures.h"
#include "driver/stepper.h"

namespace lockstep::driver {

void Stepper::on(WorkerStarted event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.started = true;
  r.last_heartbeat = r.last_progress = now;
  if (r.needless) act(StopWorker{state.attempt, event.rank});
}

void Stepper::on(WorkerRuns event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.running = true;
  r.kept = event.kept;
  r.last_heartbeat = r.last_progress = now;
  const auto& notice = state.preemption ? state.preemption : state.growth.leaving;
  if (notice) act(TellPreemption{event.rank, notice->deadline});
  if (state.announced) {  // this worker replaces another
    act(AnnounceRank{event.rank, event.pid});
    if (state.ending.wanted) act(HoldReports{event.rank});
    return;
  }
  if (!std::ranges::all_of(state.ranks, &RankState::running)) return;
  state.announced = true;
  act(AnnounceRunning{state.attempt});
  if (state.ending.wanted) hold_reports();
}

void Stepper::on(HeartBeat event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.last_heartbeat = now;
  if (event.progress != r.progress) {
    r.progress = event.progress;
    r.last_progress = now;
  }
}

void Stepper::on(Alive event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.last_heartbeat = r.last_progress = now;
  // The agent writes what a worker handed over before its end.
  if (state.phase == Phase::stopping || state.phase == Phase::interrupted)
    state.deadline = std::max(state.deadline, now + ticks(state.policy.gone_time));
}

void Stepper::on(WasAway event) {
  if (state.phase == Phase::stopping || state.phase == Phase::interrupted) state.deadline += ticks(event.time);
  for (RankState& r : state.ranks) {
    r.last_heartbeat = std::min(now, r.last_heartbeat + ticks(event.time));
    r.last_progress = std::min(now, r.last_progress + ticks(event.time));
  }
}

void Stepper::on(WorkerFinished event) {
  if (!current(event.attempt, event.rank)) return;
  finish(event.rank);
  finish_needless();
  run_hooks_when_due();
  if (state.phase != Phase::attempting || !std::ranges::all_of(state.ranks, &RankState::finished)) return;
  warn_behind(1);
  if (state.policy.keep_workers) act(KeepWorkers{state.attempt, state.open_nodes});
}

void Stepper::finish(int number) {
  rank(number).finished = true;
  rank(number).awaits_calls = false;
  choose_last_report();
  watch_laggards();
  if (!state.growth.begun)
    go_on_all();
  else if (number == 0)
    expect_end();
  act(AnnounceFinished{number, state.phase == Phase::interrupted || state.growth.begun});
  commit_what_is_whole();
  settle_meeting();
}

void Stepper::on(WorkerFailed event) {
  if (!current(event.attempt, event.rank)) return;
  rank(event.rank).failed = true;
  event.failure.rank = event.rank;
  event.failure.attempt = event.attempt;
  fail(std::move(event.failure));
}

void Stepper::on(WorkerExited event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.exited = true;
  const bool by_us = event.stopped_by_us || r.needless || (r.stopped && state.phase != Phase::attempting);
  if (r.finished && (event.code != 0 || event.signal != 0) && !event.stopped_by_us && !r.needless)
    act(Warn{"rank " + std::to_string(event.rank) + " finished its function, but then " +
             failure_of_exit(event).message});
  if (!r.finished && !r.failed && !by_us) lose(event.rank, failure_of_exit(event));
}

/// A rank ended too early: it is replaced, or the attempt has failed.
void Stepper::lose(int number, Failure failure) {
  const int counts = rank(number).stopped ? 0 : 1;
  if (counts == 0) failure = failure_of_stuck(state, number);
  const bool a_survivor = std::ranges::any_of(
      state.ranks, [](const RankState& r) { return r.started && !r.exited && !r.stopped && !r.failed; });
  const bool possible = state.policy.replace_workers && state.phase == Phase::attempting && a_survivor &&
                        failures_are_left(counts) && state.meeting.present.empty() &&
                        std::ranges::none_of(state.ranks, &RankState::finished);
  if (!possible) return fail(std::move(failure));
  replace(number, counts, std::move(failure));
}

}  // namespace lockstep::driver
