#include <algorithm>
#include <utility>

#include "driver/failures.h"
#include "driver/rules.h"
#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// After this part of the hang timeout, a rank is nearly late.
constexpr double kNearly = 0.9;

}  // namespace

/// Ranks past their deadline, the longest silent first.
std::vector<int> Stepper::silent_ranks(Seconds limit, Instant RankState::*last) const {
  std::vector<int> silent;
  for (int i = 0; i < world_size(); ++i) {
    const RankState& r = rank(i);
    if (r.started && !r.finished && !r.failed && !r.exited && now - r.*last >= limit) silent.push_back(i);
  }
  std::ranges::stable_sort(silent, {}, [&](int i) { return rank(i).*last; });
  return silent;
}

std::vector<int> Stepper::without_progress(Seconds limit) const {
  auto silent = silent_ranks(limit, &RankState::last_progress);
  std::erase_if(silent, [&](int i) { return waits(state, i); });
  return silent;
}

void Stepper::look_for_silence() {
  state.hung = silent_ranks(state.policy.heartbeat_timeout, &RankState::last_heartbeat);
  state.hang_kind = FailureKind::heartbeat;
  if (state.hung.empty() && state.policy.hang_timeout) {
    // If one rank hangs, the others fall silent at almost the same time, and not always after it. So ranks that are
    // nearly late are reported too.
    if (!without_progress(*state.policy.hang_timeout).empty())
      state.hung = without_progress(kNearly * *state.policy.hang_timeout);
    state.hang_kind = FailureKind::hang;
  }
  if (state.hung.empty()) return;
  state.phase = Phase::diagnosing;
  state.deadline = now + ticks(state.policy.stacks_timeout + 1s);
  act(Warn{ranks_text(state.hung) +
           (state.hang_kind == FailureKind::hang ? " made no progress" : " sent no heartbeat") +
           " in time; taking stacks of all ranks"});
  act(TakeStacks{state.attempt, state.open_nodes, state.policy.stacks_timeout});
}

void Stepper::on(WorkerStacks event) {
  if (!current(event.attempt, event.rank)) return;
  rank(event.rank).stacks = std::move(event.text);
  if (state.phase != Phase::diagnosing) return;
  if (std::ranges::all_of(state.ranks, [](const RankState& r) { return r.exited || !r.started || !r.stacks.empty(); }))
    judge_silence();
}

void Stepper::judge_silence() {
  std::vector<std::string> stacks;
  for (const RankState& r : state.ranks) stacks.push_back(r.stacks);
  act(SaveStacks{state.attempt, std::move(stacks)});
  for (Failure& failure : failures_of_silence(state, now)) fail(std::move(failure));
}

}  // namespace lockstep::driver
