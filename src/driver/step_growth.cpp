#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/rules.h"
#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// How often an elastic run that is not as large as it may be asks whether there is room for more workers.
constexpr auto kLookAgain = 1s;
/// Ranks that wait in a report wait for rank 0 to make the same report at most this long. It may report less often, and
/// wait for them elsewhere.
constexpr auto kGatePatience = 5s;
/// How long an attempt that ends for one of another size waits for ranks that have not made the last report: for those
/// that report less often than the others, and for the others.
constexpr auto kLateRanks = 1s;
constexpr auto kSlowRanks = 60s;

}  // namespace

bool Stepper::may_resize() const {
  return state.phase == Phase::attempting && state.announced && !state.growth.begun &&
         state.policy.workers.is_elastic() && !state.ending.wanted && !state.preemption &&
         std::ranges::none_of(state.ranks, &RankState::finished);
}

bool Stepper::may_grow() const { return may_resize() && world_size() < state.policy.workers.most; }

/// The workers of an attempt are about to start.
void Stepper::note_size() {
  Growth& growth = state.growth;
  if (growth.size != 0 && growth.size != world_size()) growth.allowed = now + ticks(state.policy.resize_interval);
  growth.size = world_size();
  const bool may_become_larger = state.policy.workers.is_elastic() && world_size() < state.policy.workers.most;
  growth.look = may_become_larger ? now + kLookAgain : Instant::max();
}

// ---------------------------------------------------------------- whether there is room

void Stepper::look_for_room(bool at_checkpoint) {
  state.growth.look = now + kLookAgain;
  state.growth.at_checkpoint = at_checkpoint;
  act(LookForRoom{state.attempt});
}

/// Also when the run may not grow yet: engines look for nodes in place of lost ones when they are asked.
void Stepper::watch_room() {
  if (now >= state.growth.look) look_for_room(false);
}

void Stepper::on(RoomFound event) {
  Growth& growth = state.growth;
  const bool at_checkpoint = std::exchange(growth.at_checkpoint, false);
  if (!current(event.attempt)) return;
  if (growth.asked > 0) {
    if (--growth.asked == 0) leave_or_end(event.workers);
    return;
  }
  if (growth.leaving || !may_grow()) return;
  if (event.workers <= world_size() || now < growth.allowed) return go_on_all();
  if (!growth.uneven) return pause_all();
  if (at_checkpoint) resize_now();
}

void Stepper::resize_now() {
  state.growth.begun = true;
  save_then_stop();
}

// ---------------------------------------------------------------- a node will be taken away

void Stepper::leave_node(const PreemptionNoticed& event) {
  act(LeaveNode{event.node});
  if ((state.phase != Phase::placing && !is_working()) || !has_workers_on(event.node)) return;
  Growth& growth = state.growth;
  const Preemption notice = preemption_of(event);
  if (!growth.leaving || notice.deadline < growth.leaving->deadline) growth.leaving = notice;
  growth.why = event.why;
  ++growth.asked;
  act(LookForRoom{state.attempt});
}

/// The run goes on with so many workers without the node, or ends with it.
void Stepper::leave_or_end(int workers) {
  Growth& growth = state.growth;
  const Seconds left = growth.leaving->deadline - now;
  if (workers < state.policy.workers.least) {
    growth.leaving.reset();
    return on(PreemptionNoticed{left, growth.why});
  }
  act(Warn{growth.why + "; the run goes on without it after its next checkpoint, or else in " +
           human_duration(left.count())});
  for (int i = 0; i < world_size(); ++i)
    if (is_active(state, i)) act(TellPreemption{i, growth.leaving->deadline});
  if (may_resize()) pause_all();
}

void Stepper::watch_leaving() {
  const auto& leaving = state.growth.leaving;
  if (!leaving) return;
  if (now >= leaving->last_call && is_working()) resize_now();
  if (now >= leaving->deadline && state.phase == Phase::saving) kill();
}

// ---------------------------------------------------------------- ranks pause until there is a checkpoint

/// Answers of an earlier time must not be taken for new ones.
void Stepper::pause_all() {
  Growth& growth = state.growth;
  if (growth.pausing || !growth.paused.empty()) return;
  growth.pausing = true;
  for (int i = 0; i < world_size(); ++i) {
    growth.paused[i] = 0;
    act(PauseReports{i});
  }
}

void Stepper::go_on_all() {
  Growth& growth = state.growth;
  if (!std::exchange(growth.pausing, false)) return;
  growth.patience = Instant::max();
  if (std::exchange(growth.gate, std::nullopt)) growth.paused.clear();
  if (is_working()) act(LetPass{-1});
}

void Stepper::on(ReportsPaused event) {
  if (!current(event.attempt, event.rank)) return;
  Growth& growth = state.growth;
  growth.paused[event.rank] = event.reports;
  int most = 0;
  for (const auto& [number, reports] : growth.paused) {
    if (reports == 0) return;
    most = std::max(most, reports);
  }
  if (!growth.pausing) return growth.paused.clear();
  growth.gate = most;
  act(LetPass{most - 1});
  move_gate();
}

/// All ranks end after the report of the gate if rank 0's has a checkpoint. Otherwise they go on to the next one.
void Stepper::move_gate() {
  Growth& growth = state.growth;
  if (!growth.gate || growth.begun || state.phase != Phase::attempting) return;
  if (rank(0).reports < *growth.gate) {
    const bool some_wait =
        std::ranges::any_of(state.ranks, [&](const RankState& r) { return r.reports >= *growth.gate; });
    if (some_wait) growth.patience = std::min(growth.patience, now + kGatePatience);
    return;
  }
  growth.patience = Instant::max();
  if (growth.checkpoint < *growth.gate) {
    growth.gate = rank(0).reports + 1;
    return act(LetPass{rank(0).reports});
  }
  growth.begun = true;
  state.ending.after = *growth.gate;
  for (int i = 0; i < world_size(); ++i)
    if (is_active(state, i)) act(EndAfter{i, *growth.gate, true});
}

void Stepper::watch_gate() {
  if (now < state.growth.patience) return;
  state.growth.uneven = true;
  go_on_all();
}

// ---------------------------------------------------------------- the attempt ends

void Stepper::note_commit(int report) {
  if (state.growth.begun && state.ending.after && report == *state.ending.after - 1) expect_end();
  if (state.growth.leaving && !state.growth.pausing && may_resize()) return resize_now();
  if (may_grow() && now >= state.growth.allowed) look_for_room(true);
}

/// The last report was chosen. Ranks that are slow to make it are waited for; those that report less often than the
/// others, or never, might not reach it, and wait for ranks that have ended.
void Stepper::expect_end() {
  if (!state.ending.after) return;
  const int last = *state.ending.after;
  bool some_lag = false, some_are_slow = false;
  for (int i = 0; i < world_size(); ++i) {
    const int reports = rank(i).reports;
    if (!is_active(state, i) || reports >= last) continue;
    const bool lags = last - reports >= 2 || (reports == 0 && last > 1);
    (lags ? some_lag : some_are_slow) = true;
  }
  const auto patience = some_lag && !some_are_slow ? kLateRanks : kSlowRanks;
  state.ending.laggards_end = std::min(state.ending.laggards_end, now + patience);
}

}  // namespace lockstep::driver
