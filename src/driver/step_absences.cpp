#include <algorithm>
#include <utility>

#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// The timeout in the closing barrier of a rank that is ended; longer than any rank waits there.
constexpr Seconds kLeavingTime{3600.0};

}  // namespace

void Stepper::replace(int number, int counts, Failure failure) {
  state.failed_attempts += counts;
  const bool away = rank(number).away;
  RankState& anew = rank(number) = RankState{};
  state.ending.held.erase(number);
  anew.reports = most_reports();
  anew.replaces = true;
  anew.absent = state.policy.regroups;
  anew.away = away;
  act(ReplaceWorker{state.attempt, number, anew.reports, state.meeting.number, counts, away, std::move(failure)});
}

/// The failure counts for the attempt, not a second time for its rank.
void Stepper::on(CannotReplace event) {
  if (!current(event.attempt)) return;
  state.failed_attempts -= event.counts;
  fail(std::move(event.failure));
}

void Stepper::on(RankStuck event) {
  if (!current(event.attempt, event.rank) || state.phase != Phase::attempting) return;
  RankState& r = rank(event.rank);
  if (!r.started || r.exited || r.finished || r.failed || r.stopped) return;
  r.stopped = true;
  act(StopWorker{state.attempt, event.rank});
}

void Stepper::on(RankLeft event) {
  if (!current(event.attempt, event.rank)) return;
  rank(event.rank).away = true;
  act(AnnounceAway{event.rank});
}

void Stepper::on(RankJoined event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.absent = false;
  if (!std::exchange(r.away, false)) return;
  catch_up(event.rank, 1);
  act(AnnounceBack{event.rank});
}

void Stepper::on(RankNeedless event) {
  if (!current(event.attempt, event.rank)) return;
  rank(event.rank).needless = true;
  act(AnnounceNeedless{event.rank});
  act(StopWorker{state.attempt, event.rank});
  enter_meeting(event.rank, {state.meeting.number, kLeavingTime.count(), {}});
}

/// If a rank has missed `at_least` reports of the others, counts them as empty reports of its own. So it is not behind
/// when it rejoins, and until then nobody waits for its checkpoints.
void Stepper::catch_up(int number, int at_least) {
  RankState& r = rank(number);
  const int missed = most_reports() - r.reports;
  if (missed < at_least) return;
  r.missed += missed;
  r.reports += missed;
  r.last_heartbeat = r.last_progress = now;
  act(Deliver{number, {}});
}

void Stepper::catch_up_absent(int at_least) {
  for (int i = 0; i < world_size(); ++i)
    if (rank(i).absent) catch_up(i, at_least);
}

/// When the last of the others has finished, all their reports are known. A replaced rank that took part is not behind:
/// it may have started to count one report too early, because that report was still in transit.
void Stepper::finish_needless() {
  if (!std::ranges::all_of(state.ranks, [](const RankState& r) { return r.finished || r.needless; })) return;
  for (int i = 0; i < world_size(); ++i) {
    if (rank(i).replaces) catch_up(i, 1);
    if (rank(i).needless && !rank(i).finished) finish(i);
  }
}

}  // namespace lockstep::driver
