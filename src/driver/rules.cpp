#include "driver/rules.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::driver {
namespace {

const RankState& rank_of(const RunState& state, int rank) { return state.ranks[static_cast<std::size_t>(rank)]; }

int number_of_ranks(const RunState& state) { return static_cast<int>(state.ranks.size()); }

/// With keep_all_ranks: whether the ranks that no longer write have written their parts.
bool can_be_whole(const RunState& state, int report) {
  if (!state.policy.keep_all_ranks) return true;
  for (int i = 0; i < number_of_ranks(state); ++i) {
    const RankState& rank = rank_of(state, i);
    if (rank.finished || state.saving.unsettled.contains(i)) continue;
    if (rank.reports <= report || std::ranges::count(unwritten(state, i), report) > 0) return false;
  }
  return true;
}

/// Whether a rank was two reports or more behind the last one when that was chosen, or has made none at all.
bool lags(const RunState& state, int rank) {
  const auto held = state.ending.held.find(rank);
  return rank_of(state, rank).reports == 0 ||
         (held != state.ending.held.end() && held->second <= *state.ending.after - 2);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks);
}

bool waits(const RunState& state, int rank) {
  return state.meeting.present.contains(rank) || rank_of(state, rank).wants || rank_of(state, rank).awaits_calls;
}

bool is_active(const RunState& state, int rank) {
  const RankState& r = rank_of(state, rank);
  return r.running && !r.finished && !r.failed && !r.exited && !r.stopped;
}

std::vector<int> unwritten(const RunState& state, int rank) {
  std::vector<int> reports;
  for (const auto& [report, metrics] : rank_of(state, rank).announced) {
    const auto found = state.parts.find(report);
    if (found == state.parts.end() || std::ranges::count(found->second, rank, &CheckpointPart::rank) == 0)
      reports.push_back(report);
  }
  return reports;
}

bool in_step(const RunState& state, int report) {
  for (int i = 1; i < number_of_ranks(state); ++i) {
    const RankState& rank = rank_of(state, i);
    const bool has_ended = rank.finished || rank.awaits_calls;
    const bool has_come = rank.reports > report || rank.met > report || state.meeting.present.contains(i);
    // A run that is stopped in its first seconds keeps a checkpoint even if only rank 0 reports.
    const bool never_reports = rank.sparse || rank.absent || (state.stop_requested && rank.reports == 0);
    if (!has_ended && !has_come && !never_reports) return false;
  }
  return true;
}

bool may_write(const RunState& state, int rank) {
  const bool counts = rank == 0 || state.policy.keep_all_ranks;
  const bool silent = state.hang_kind == FailureKind::heartbeat && std::ranges::count(state.hung, rank) > 0;
  return counts && is_active(state, rank) && !silent;
}

bool writes_what_counts(const RunState& state) {
  return std::ranges::any_of(state.saving.unsettled, [&](int rank) {
    return std::ranges::any_of(unwritten(state, rank), [&](int report) { return can_be_whole(state, report); });
  });
}

std::optional<int> last_report(const RunState& state) {
  std::optional<int> last;
  for (int i = 0; i < number_of_ranks(state); ++i) {
    if (!is_active(state, i)) continue;
    const auto held = state.ending.held.find(i);
    if (held == state.ending.held.end()) return std::nullopt;
    last = std::max(last.value_or(0), held->second);
  }
  return last;
}

bool may_lag(const RunState& state, int rank) {
  const RankState& r = rank_of(state, rank);
  return is_active(state, rank) && !r.awaits_calls && r.reports < *state.ending.after;
}

bool waits_for_laggards(const RunState& state) {
  if (!state.ending.after || state.policy.keep_all_ranks) return false;
  bool any = false;
  for (int i = 0; i < number_of_ranks(state); ++i) {
    if (!may_lag(state, i)) continue;
    if (!lags(state, i)) return false;
    any = true;
  }
  return any;
}

}  // namespace lockstep::driver
