#include <algorithm>
#include <utility>

#include "driver/rules.h"
#include "driver/stepper.h"

namespace lockstep::driver {
namespace {

/// After the others have made their last report, a rank that reports less often is interrupted after this long.
constexpr auto kLaggardsTime = 1s;

}  // namespace

void Stepper::on(StopWanted) {
  if (std::exchange(state.ending.wanted, true)) return;
  go_on_all();
  if (state.announced && state.phase == Phase::attempting) hold_reports();
}

void Stepper::hold_reports() {
  for (int i = 0; i < world_size(); ++i)
    if (is_active(state, i)) act(HoldReports{i});
}

void Stepper::on(Delivered event) {
  if (!current(event.attempt, event.rank)) return;
  auto& announced = rank(event.rank).announced;
  for (auto& each : event.metrics)
    if (const auto found = announced.find(each.first); found != announced.end()) found->second = std::move(each.second);
  if (event.looked_at && !state.ending.wanted) act(GoOn{rank(event.rank).reports});
}

void Stepper::on(ReportsHeld event) {
  if (!current(event.attempt, event.rank)) return;
  state.ending.held[event.rank] = event.reports + rank(event.rank).missed;
  if (state.ending.after) return end_after(event.rank);
  choose_last_report();
}

/// Converts the number to the count of the rank itself.
void Stepper::end_after(int number) { act(EndAfter{number, *state.ending.after - rank(number).missed}); }

void Stepper::choose_last_report() {
  if (state.ending.after) return;
  state.ending.after = last_report(state);
  if (!state.ending.after) return;
  for (int i = 0; i < world_size(); ++i)
    if (is_active(state, i)) end_after(i);
}

void Stepper::watch_laggards() {
  Ending& ending = state.ending;
  if (state.growth.begun) return;
  if (!ending.laggards_told && waits_for_laggards(state))
    ending.laggards_end = std::min(ending.laggards_end, now + ticks(kLaggardsTime));
}

void Stepper::end_all(const std::set<int>& ranks) {
  for (const int i : ranks)
    if (is_active(state, i)) act(InterruptWorker{i});
}

void Stepper::end_laggards() {
  state.ending.laggards_told = true;
  state.ending.laggards_end = Instant::max();
  if (state.phase != Phase::attempting) return;
  if (state.growth.begun) return save_then_stop();
  for (int i = 0; i < world_size(); ++i)
    if (may_lag(state, i)) act(InterruptWorker{i});
}

}  // namespace lockstep::driver
