#include "driver/step.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/rules.h"
#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// A run that is being preempted needs at most this long to save what it has.
constexpr Seconds kWritingTime{5.0};

constexpr const char* kBeingStopped = "[session] the run is being stopped";

/// A failed attempt waits for its checkpoints for a limited time. A run that was asked to stop waits as long as the
/// ranks that write them are alive.
Instant end_of_saving(const RunState& state) {
  const Instant end = state.saving.since + ticks(state.policy.saving_time);
  if (!state.stop_requested) return end;
  Instant heard = Instant::max();
  for (const int rank : state.saving.unsettled)
    heard = std::min(heard, state.ranks[static_cast<std::size_t>(rank)].last_heartbeat);
  return std::max(end, heard + ticks(state.policy.heartbeat_timeout));
}

}  // namespace

void Stepper::stop(bool interrupt) {
  const Seconds grace = interrupt ? state.policy.interrupt_grace : Seconds{0};
  state.deadline = now + ticks(grace + state.policy.gone_time);
  act(StopWorkers{state.attempt, state.open_nodes, interrupt, grace});
}

/// All other nodes are lost with the head.
void Stepper::give_up_open_nodes() {
  state.deadline = now + ticks(state.policy.gone_time);
  const std::string why = "[driver] the agent has not ended the workers " +
                          human_duration(state.policy.gone_time.count()) + " after it was told to kill them";
  if (state.open_nodes.contains(0)) return act(GiveUpNode{0, why});
  for (const int node : state.open_nodes) act(GiveUpNode{node, why});
}

/// After the first failure the other ranks are killed, once they have written what they reported. Failures that arrive
/// until all are gone are added to it.
void Stepper::fail(Failure failure) {
  // When the attempt ends for one of another size, ranks may fail because others have ended already.
  if (state.growth.begun && failure.rank >= 0) {
    act(Warn{"rank " + std::to_string(failure.rank) +
             " failed while the attempt ended for one of another size: " + failure.message});
    return expect_end();
  }
  state.failures.push_back(std::move(failure));
  if (is_working()) save_then_stop();
}

void Stepper::save_then_stop() {
  state.phase = Phase::saving;
  state.saving.since = now;
  state.deadline = now + ticks(state.policy.settling_time);
  for (int i = 0; i < world_size(); ++i)
    if (may_write(state, i)) state.saving.unsettled.insert(i);
  if (state.saving.unsettled.empty()) return;
  for (int i = 0; i < world_size(); ++i) {
    if (state.saving.unsettled.contains(i)) {
      act(SettleWorker{i});
    } else if (is_active(state, i)) {
      rank(i).stopped = true;
      act(StopWorker{state.attempt, i});
    }
  }
}

void Stepper::go_on_saving() {
  if (state.phase != Phase::saving) return;
  std::erase_if(state.saving.unsettled, [&](int number) { return !is_active(state, number); });
  if (writes_what_counts(state)) state.deadline = end_of_saving(state);
  if (state.saving.unsettled.empty() || now >= state.deadline) kill();
}

void Stepper::kill() {
  state.phase = Phase::stopping;
  stop(false);
}

void Stepper::on(Settled event) {
  if (current(event.attempt, event.rank)) state.saving.unsettled.erase(event.rank);
}

void Stepper::end(Outcome outcome) {
  state.phase = Phase::ended;
  state.deadline = Instant::max();
  act(EndRun{outcome, state.failures});
}

void Stepper::on(Interrupted) {
  ++state.interrupts;
  if (state.phase != Phase::interrupted) return interrupt();
  if (state.interrupts > 1) stop(false);
}

/// Not counted: the signal that interrupted the callback may still come, and must not kill the workers.
void Stepper::on(CallbackInterrupted) { interrupt(); }

/// Ends a run that has no workers. Returns false if it has some, which must end first.
bool Stepper::ends_at_once(Outcome outcome) {
  switch (state.phase) {
    case Phase::ended:
    case Phase::interrupted:
      return true;
    case Phase::idle:
    case Phase::placing:
    case Phase::pausing:
      end(outcome);
      return true;
    case Phase::attempting:
    case Phase::diagnosing:
    case Phase::saving:
    case Phase::stopping:
      return false;
  }
  return false;
}

void Stepper::interrupt() {
  const bool again = std::exchange(state.was_interrupted, true);
  if (ends_at_once(Outcome::interrupted)) return;
  const bool kills = state.phase == Phase::stopping, works = is_working();
  if (!kills || !again || !state.fatal) state.phase = Phase::interrupted;
  if (kills) return;
  // A worker whose function does not run yet has nothing to end cleanly, and reads no messages.
  stop(works && std::ranges::all_of(state.ranks, &RankState::running));
  if (works) release_meeting(kBeingStopped);
}

Outcome Stepper::outcome_of_stop() const { return state.preemption ? Outcome::preempted : Outcome::stopped; }

void Stepper::on(StopRequested event) {
  if (ends_at_once(outcome_of_stop())) return;
  state.stop_requested = true;
  const bool works = is_working();
  if (works && event.checkpoint) save_then_stop();
  if (!event.checkpoint && state.phase != Phase::stopping) kill();
  if (works) release_meeting(kBeingStopped);
}

Preemption Stepper::preemption_of(const PreemptionNoticed& event) const {
  const Instant deadline = now + ticks(event.grace);
  return {deadline, deadline - ticks(std::min(kWritingTime, event.grace / 4))};
}

/// The first notice counts. The run ends at the next checkpoint that is made by a worker that knows of it, or shortly
/// before the deadline with what it has. Those made earlier may arrive later.
void Stepper::on(const PreemptionNoticed& event) {
  if (state.preemption || state.phase == Phase::ended) return;
  if (event.node != 0 && state.policy.workers.is_elastic()) return leave_node(event);
  const Instant deadline = now + ticks(event.grace);
  go_on_all();
  state.preemption = preemption_of(event);
  act(Warn{event.why + "; the run ends at its next checkpoint, or else in " + human_duration(event.grace.count())});
  if (ends_at_once(Outcome::preempted)) return;
  for (int i = 0; i < world_size(); ++i)
    if (is_active(state, i)) act(TellPreemption{i, deadline});
}

void Stepper::end_preempted() {
  if (is_working()) on(StopRequested{true});
}

void Stepper::watch_preemption() {
  if (!state.preemption) return;
  if (now >= state.preemption->last_call) end_preempted();
  if (now >= state.preemption->deadline && state.phase == Phase::saving) kill();
}

void Stepper::on(DriverFailed event) {
  if (state.phase == Phase::ended) return;
  // The callbacks of an interrupted run may fail because of the interrupt.
  if (state.phase == Phase::interrupted && event.failure.kind == FailureKind::callback)
    return act(Warn{std::move(event.failure.message)});
  state.fatal = state.fatal || event.fatal;
  event.failure.attempt = attempt_now();
  if (state.phase == Phase::idle) {
    state.failures.push_back(std::move(event.failure));
    act(AnnounceFailure{state.failures, false});
    return end(Outcome::failed);
  }
  if (!live()) return cannot_start(std::move(event.failure), event.fatal);
  // If a run that is being ended cannot commit its last checkpoint, it has failed, and is not retried.
  if (state.phase == Phase::interrupted || state.stop_requested) state.fatal = true;
  if (state.phase == Phase::interrupted) kill();
  state.stop_requested = false;
  fail(std::move(event.failure));
}

void Stepper::on(Tick) {
  if (state.phase == Phase::pausing && now >= state.deadline) return end_attempt();
  if (state.phase == Phase::placing && now >= state.deadline) {
    state.deadline = Instant::max();
    return act(PlaceWorkers{state.attempt});
  }
  if (!live()) return;
  const bool ends = state.phase == Phase::stopping || state.phase == Phase::interrupted;
  if (ends && now >= state.deadline) return give_up_open_nodes();
  watch_preemption();
  watch_room();
  watch_gate();
  watch_leaving();
  if (now >= state.meeting.deadline) settle_meeting();
  if (state.phase == Phase::diagnosing && now >= state.deadline) return judge_silence();
  if (now >= state.ending.laggards_end) end_laggards();
  if (now >= state.parts_end) give_up_sparse_ranks();
  if (state.phase == Phase::attempting) look_for_silence();
}

std::pair<RunState, std::vector<Action>> step(RunState state, Event event, Instant now) {
  Stepper stepper{state, now};
  std::visit([&](auto& each) { stepper.on(std::move(each)); }, event);
  stepper.answer_wants();
  stepper.go_on_saving();
  auto actions = std::move(stepper.actions);
  return {std::move(state), std::move(actions)};
}

std::optional<Instant> next_deadline(const RunState& state) {
  if (state.phase == Phase::idle || state.phase == Phase::ended) return std::nullopt;
  Instant next = std::min({state.deadline, state.meeting.deadline, state.ending.laggards_end, state.parts_end});
  for (const auto& preemption : {state.preemption, state.growth.leaving}) {
    if (preemption && (state.phase == Phase::attempting || state.phase == Phase::diagnosing))
      next = std::min(next, preemption->last_call);
    if (preemption && state.phase == Phase::saving) next = std::min(next, preemption->deadline);
  }
  if (state.phase == Phase::attempting) {
    next = std::min({next, state.growth.look, state.growth.patience});
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
