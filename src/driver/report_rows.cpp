#include "driver/report_rows.h"

#include <algorithm>

namespace lockstep::driver {
namespace {

std::size_t cost_of(const wire::Report& report) { return report.metrics.size() + sizeof report; }

}  // namespace

void ReportRows::add(int rank, wire::Report report) {
  Rank& r = ranks_.at(static_cast<std::size_t>(rank));
  if (r.to_drop > 0) {
    --r.to_drop;
    return;
  }
  bytes_ += cost_of(report);
  r.waiting.push_back(std::move(report));
}

void ReportRows::finish(int rank) { ranks_.at(static_cast<std::size_t>(rank)).finished = true; }

void ReportRows::restart(int rank) {
  Rank& restarted = ranks_.at(static_cast<std::size_t>(rank));
  for (const auto& report : restarted.waiting) bytes_ -= cost_of(report);
  restarted = {};
  for (const Rank& r : ranks_) forced_ = std::max(forced_, r.waiting.size());
  restarted.absent = forced_ > 0;
}

bool ReportRows::is_due() const {
  if (std::ranges::all_of(ranks_, [](const Rank& r) { return r.waiting.empty(); })) return false;
  return forced_ > 0 || bytes_ > most_bytes_ ||
         std::ranges::all_of(ranks_, [](const Rank& r) { return r.finished || !r.waiting.empty(); });
}

std::optional<std::vector<std::optional<wire::Report>>> ReportRows::next() {
  if (!is_due()) return std::nullopt;
  std::vector<std::optional<wire::Report>> row;
  for (Rank& r : ranks_) {
    if (r.waiting.empty()) {
      row.emplace_back();
      if (!r.finished && !r.absent) ++r.to_drop;
      continue;
    }
    bytes_ -= cost_of(r.waiting.front());
    row.emplace_back(std::move(r.waiting.front()));
    r.waiting.pop_front();
  }
  if (forced_ > 0 && --forced_ == 0)
    for (Rank& r : ranks_) r.absent = false;
  return row;
}

}  // namespace lockstep::driver
