#include <algorithm>
#include <utility>

#include "driver/stepper.h"

namespace lockstep::driver {

void Stepper::on(CallsAwaited event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.awaits_calls = true;
  r.last_progress = now;
  if (state.prepared && !state.growth.begun) go_on_all();  // its function has returned
  settle_meeting();
  run_hooks_when_due();
}

/// Once before the functions; once more after them, where a rank that was interrupted may have ended already.
void Stepper::run_hooks_when_due() {
  if (!state.policy.hooks || state.in_hooks || state.phase != Phase::attempting) return;
  const auto waits = [](const RankState& r) { return r.awaits_calls || r.finished; };
  if (!std::ranges::all_of(state.ranks, waits) || std::ranges::all_of(state.ranks, &RankState::finished)) return;
  state.in_hooks = true;
  act(RunHooks{state.attempt, std::exchange(state.prepared, true)});
}

void Stepper::on(CallMade event) {
  if (!current(event.attempt) || state.phase != Phase::attempting) return;
  for (const int number : event.ranks) {
    rank(number).awaits_calls = false;
    rank(number).last_progress = now;
    act(MakeCall{number, {event.payload}});
  }
}

void Stepper::on(HooksDone event) {
  if (!current(event.attempt)) return;
  state.in_hooks = false;
  if (state.phase != Phase::attempting) return;
  for (int i = 0; i < world_size(); ++i)
    if (std::exchange(rank(i).awaits_calls, false)) act(EndCalls{i});
}

/// When the attempt has ended already, the hook failed because of that: what ended it comes first and names the hook.
void Stepper::on(HookFailed event) {
  if (!current(event.attempt)) return;
  state.in_hooks = false;
  event.failure.attempt = event.attempt;
  if (state.phase == Phase::attempting) return fail(std::move(event.failure));
  if (!state.failures.empty()) state.failures.front().message += ", while " + event.hook + " ran";
}

}  // namespace lockstep::driver
