#include <algorithm>
#include <utility>

#include "driver/failures.h"
#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// If an attempt could not be started, the next one starts after this pause.
constexpr auto kPause = 1s;
/// How often it is asked whether nodes have come.
constexpr auto kAskAgain = 500ms;

}  // namespace

/// The attempt that runs or is about to.
int Stepper::attempt_now() const { return state.phase == Phase::idle ? state.attempt + 1 : state.attempt; }

bool Stepper::failures_are_left(int more) const {
  return state.policy.max_failures < 0 || state.failed_attempts + more <= state.policy.max_failures;
}

/// What comes from outside does not use up the failures that the function is allowed.
int Stepper::counted_as(const Failure& failure) const {
  const bool is_loss = failure.kind == FailureKind::node && state.lost_a_node;
  return is_loss && !state.policy.count_node_failures ? 0 : 1;
}

// ---------------------------------------------------------------- an attempt begins

void Stepper::enter_attempt() {
  ++state.attempt;
  state.phase = Phase::placing;
  state.placement.reset();
  state.open_nodes.clear();
  state.ranks.clear();
  state.failures.clear();
  state.lost_a_node = false;
  state.parts.clear();
  state.parts_end = Instant::max();
  state.committing.reset();
  state.committed = -1;
  state.meeting = {};
  state.ending.begin_attempt();
  state.saving = {};
  state.growth.begin_attempt();
  state.deadline = Instant::max();
  state.hung.clear();
  state.warned_behind = false;
  state.announced = false;
  state.in_hooks = false;
  state.prepared = false;
}

void Stepper::start_attempt() {
  enter_attempt();
  if (state.ready.contains(0))
    act(PlaceWorkers{state.attempt});
  else
    act(Reconnect{});
}

void Stepper::on(AgentIsReady event) {
  const bool first = state.ready.insert(event.node).second;
  if (state.phase == Phase::idle) return start_attempt();
  if (state.phase != Phase::placing) return;
  if (first && event.node == 0 && !state.placement) return act(PlaceWorkers{state.attempt});
  start_when_ready();
}

void Stepper::on(Placed event) {
  if (event.attempt != state.attempt || state.phase != Phase::placing) return;
  state.placement = std::move(event.placement);
  for (const int node : state.placement->nodes())
    if (!state.ready.contains(node)) act(ConfigureNode{node});
  start_when_ready();
}

void Stepper::on(NotPlaced event) {
  if (event.attempt == state.attempt && state.phase == Phase::placing) state.deadline = now + kAskAgain;
}

void Stepper::start_when_ready() {
  if (!state.placement) return;
  const auto nodes = state.placement->nodes();
  if (!std::ranges::all_of(nodes, [&](int node) { return state.ready.contains(node); })) return;
  state.phase = Phase::attempting;
  state.open_nodes = {nodes.begin(), nodes.end()};
  state.ranks.assign(state.placement->ranks.size(), RankState{});
  note_size();
  act(StartWorkers{state.attempt, *state.placement});
}

void Stepper::on(StartFailed event) {
  const bool waits_for_it = state.phase == Phase::placing || live();
  if (event.attempt == state.attempt && waits_for_it) cannot_start(std::move(event.failure), event.fatal);
}

/// No worker of the attempt exists, so no events of it will come.
void Stepper::cannot_start(Failure failure, bool fatal) {
  failure.attempt = state.attempt;
  state.failures.push_back(std::move(failure));
  state.fatal = state.fatal || fatal;
  state.open_nodes.clear();
  const bool ends = state.phase == Phase::interrupted || state.stop_requested || state.fatal || state.preemption;
  if (ends || !failures_are_left(counted_as(state.failures.front()))) return end_attempt();
  state.phase = Phase::pausing;
  state.deadline = now + kPause;
}

// ---------------------------------------------------------------- nodes go

bool Stepper::has_workers_on(int node) const {
  return state.placement && std::ranges::count(state.placement->ranks, node, &RankPlace::node) > 0;
}

void Stepper::on(AgentLost event) {
  if (state.phase == Phase::ended) return;
  const bool head = event.node == 0;
  Failure failure;
  failure.kind = FailureKind::node;
  failure.attempt = attempt_now();
  failure.message = std::move(event.message);
  const bool fatal = head && !state.policy.reconnects;
  state.fatal = state.fatal || fatal;
  if (head && state.phase == Phase::idle) enter_attempt();
  state.lost_a_node = state.lost_a_node || (!head && has_workers_on(event.node));
  if (head)
    state.ready.clear();
  else
    state.ready.erase(event.node);
  if (live()) return lose_node(event.node, std::move(failure));
  const bool waits_for_it = state.phase == Phase::placing && (head || has_workers_on(event.node));
  if (waits_for_it || fatal) cannot_start(std::move(failure), fatal);
}

/// A node is lost during an attempt. If it is the head, all nodes are lost.
void Stepper::lose_node(int node, Failure failure) {
  if (node == 0)
    state.open_nodes.clear();
  else if (state.open_nodes.erase(node) == 0)
    return;  // none of its workers is left, or it never had one
  bool all_finished = true;
  for (int i = 0; i < world_size(); ++i) {
    if (node != 0 && state.placement->ranks[static_cast<std::size_t>(i)].node != node) continue;
    rank(i).exited = true;
    all_finished = all_finished && rank(i).finished;
  }
  if (!all_finished) fail(std::move(failure));
  if (state.open_nodes.empty()) end_attempt();
}

// ---------------------------------------------------------------- an attempt ends

void Stepper::on(AttemptEnded event) {
  if (!current(event.attempt) || state.open_nodes.erase(event.node) == 0) return;
  if (state.open_nodes.empty()) end_attempt();
}

void Stepper::end_attempt() {
  if (state.phase == Phase::interrupted) return end(Outcome::interrupted);
  if (state.stop_requested) state.failures.clear();
  if (state.failures.empty()) {
    const bool ended_by_us = state.growth.begun && state.ending.after && !state.ending.wanted;
    const bool finished = !ended_by_us && state.placement && std::ranges::all_of(state.ranks, &RankState::finished);
    if (finished) return end(Outcome::finished);
    if (state.stop_requested) return end(outcome_of_stop());
    if (state.growth.begun) {
      act(AnnounceResize{state.attempt});
      return state.preemption ? end(Outcome::preempted) : start_attempt();
    }
    Failure failure;
    failure.attempt = state.attempt;
    failure.message = "the workers ended, and none of them reported why";
    state.failures.push_back(std::move(failure));
  }
  state.failed_attempts += counted_as(state.failures.front());
  const bool counts = !state.policy.only_deaths || is_death(state.failures.front().kind);
  const bool possible = !state.fatal && counts && failures_are_left(0);
  const bool again = possible && !state.preemption;
  act(AnnounceFailure{state.failures, again});
  if (possible && state.preemption) return end(Outcome::preempted);
  if (again)
    start_attempt();
  else
    end(Outcome::failed);
}

}  // namespace lockstep::driver
