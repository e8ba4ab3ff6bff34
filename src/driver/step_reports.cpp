#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/rules.h"
#include "driver/stepper.h"
#include "store/positions.h"

namespace lockstep::driver {
namespace {

/// If a rank is this many reports behind another, a warning is shown and the run continues.
constexpr int kFarBehind = 1000;
/// An absent rank is caught up when it has missed this many reports, well before that warning.
constexpr int kMostMissed = 500;

bool has_positions(const CheckpointPart& part) {
  const auto is_it = [](const std::string& name) { return name == store::kPositionsName; };
  return std::ranges::any_of(part.written.files, is_it, &FileEntry::name) ||
         std::ranges::any_of(part.written.contents, is_it, [](const auto& file) { return file.first; });
}

/// The common number of a rank's report; -1 stands for none.
int counted(const RankState& rank, int report) { return report < 0 ? report : report + rank.missed; }

}  // namespace

void Stepper::on(Reported event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.last_heartbeat = r.last_progress = now;
  r.reports += static_cast<int>(event.reports.size());
  if (r.reports >= rank(0).reports) r.sparse = false;
  for (auto& report : event.reports) {
    report.index = counted(r, report.index);
    if (report.has_checkpoint) r.announced.emplace(report.index, Value::object());
    if (report.preempted && event.rank == 0 && state.preemption && !state.preemption->report)
      state.preemption->report = report.index;
    if (report.has_checkpoint && event.rank == 0) state.growth.checkpoint = report.index + 1;
  }
  act(Deliver{event.rank, std::move(event.reports)});
  catch_up_absent(kMostMissed);
  commit_what_is_whole();
  warn_behind(kFarBehind);
  watch_laggards();
  move_gate();
}

void Stepper::on(PartWritten event) {
  if (!current(event.attempt, event.rank)) return;
  RankState& r = rank(event.rank);
  r.last_progress = now;
  event.written.report = counted(r, event.written.report);
  if (event.written.dropped) {
    r.announced.erase(event.written.report);
    return commit_what_is_whole();
  }
  state.parts[event.written.report].push_back({event.rank, std::move(event.written), now});
  commit_what_is_whole();
}

/// With keep_all_ranks, or with positions of data sets, a checkpoint waits until every running rank has made its
/// report.
bool Stepper::is_whole(int report) const {
  const auto& parts = state.parts.at(report);
  if (!state.policy.keep_all_ranks) return std::ranges::none_of(parts, has_positions) || in_step(state, report);
  for (int i = 0; i < world_size(); ++i) {
    if (!rank(i).finished && rank(i).reports <= report) return false;
    const bool written = std::ranges::any_of(parts, [&](const CheckpointPart& part) { return part.rank == i; });
    if (rank(i).announced.contains(report) && !written) return false;
  }
  return true;
}

/// Commits one checkpoint at a time; the next one begins when this one is done.
void Stepper::commit_what_is_whole() {
  if (state.committing) return;
  if (state.parts.empty() || !is_whole(state.parts.begin()->first)) {
    const bool waits = !state.parts.empty() && !state.policy.keep_all_ranks;
    state.parts_end =
        waits ? state.parts.begin()->second.front().time + ticks(state.policy.in_step_time) : Instant::max();
    return;
  }
  state.parts_end = Instant::max();
  auto [report, parts] = std::move(*state.parts.begin());
  state.parts.erase(state.parts.begin());
  auto first = rank(0).announced.extract(report);
  for (RankState& r : state.ranks) r.announced.erase(report);
  std::ranges::sort(parts, {}, &CheckpointPart::rank);
  state.committing = report;
  act(Commit{report, std::move(parts), first.empty() ? Value::object() : std::move(first.mapped())});
}

/// Ranks need not report equally often. Those that do not are not waited for again until they have caught up.
void Stepper::give_up_sparse_ranks() {
  state.parts_end = Instant::max();
  if (state.parts.empty() || (!is_working() && !state.stop_requested)) return;
  for (RankState& r : state.ranks)
    if (r.reports <= state.parts.begin()->first) r.sparse = true;
  commit_what_is_whole();
}

void Stepper::on(Committed event) {
  if (!current(event.attempt)) return;
  state.committing.reset();
  state.committed = event.report;
  give_committed();  // first: nobody needs to wait for the rest of the commit
  act(AnnounceCommit{event.seq});
  commit_what_is_whole();
  note_commit(event.report);
  if (state.preemption && state.preemption->report && event.report >= *state.preemption->report) end_preempted();
}

void Stepper::on(CommitFailed event) {
  if (!current(event.attempt)) return;
  state.committing.reset();
  commit_what_is_whole();
  on(DriverFailed{std::move(event.failure), event.fatal});
}

// ---------------------------------------------------------------- checkpoints that ranks ask for

void Stepper::on(CheckpointWanted event) {
  if (!current(event.attempt, event.rank)) return;
  catch_up_absent(1);  // do not wait for reports that they missed
  rank(event.rank).wants = counted(rank(event.rank), event.report);
}

/// Whether the checkpoint of a report may still be made: a rank writes its part, or has not reached that report yet.
bool Stepper::may_come(int report) const {
  if (state.committing || (!state.policy.keep_all_ranks && state.parts.contains(report))) return true;
  const int writers = state.policy.keep_all_ranks ? world_size() : 1;
  for (int i = 0; i < writers; ++i) {
    const RankState& r = rank(i);
    if (!unwritten(state, i).empty() || (!r.finished && r.reports <= report && !waits(state, i))) return true;
  }
  return false;
}

void Stepper::give_checkpoint(int number) {
  rank(number).wants.reset();
  rank(number).last_progress = now;
  act(GiveCheckpoint{number});
}

void Stepper::give_committed() {
  for (int i = 0; i < world_size(); ++i)
    if (rank(i).wants && *rank(i).wants <= state.committed) give_checkpoint(i);
}

/// Nobody may wait for a checkpoint that will never be made, because ranks may report a different number of times.
/// While the workers are being ended they do wait: after a failed commit they would take an older checkpoint for their
/// own.
void Stepper::answer_wants() {
  if (!live()) return;
  give_committed();
  if (state.phase == Phase::saving || state.phase == Phase::stopping) return;
  std::vector<int> in_vain;
  for (int i = 0; i < world_size(); ++i)
    if (rank(i).wants && !may_come(*rank(i).wants)) in_vain.push_back(i);
  for (const int i : in_vain) give_checkpoint(i);
}

int Stepper::most_reports() const { return std::ranges::max(state.ranks, {}, &RankState::reports).reports; }

void Stepper::warn_behind(int distance) {
  if (state.warned_behind) return;
  const int most = most_reports();
  std::vector<int> behind;
  for (int i = 0; i < world_size(); ++i)
    if (most - rank(i).reports >= distance) behind.push_back(i);
  if (behind.empty()) return;
  state.warned_behind = true;
  const int least = rank(behind.front()).reports;
  act(Warn{ranks_text(behind) + (behind.size() == 1 ? " is" : " are") + " behind: " + std::to_string(least) +
           " reports, but another rank made " + std::to_string(most) +
           "; call session.report equally often on every rank"});
}

}  // namespace lockstep::driver
