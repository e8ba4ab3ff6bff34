#include "tune/ranking.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::tune {
namespace {

void check_ranking_mode(const std::string& mode) {
  if (mode != "min" && mode != "max")
    throw ConfigError("[tune] mode is " + in_quotes(mode) + R"(; it must be "min" or "max")");
}

/// The value to minimise; NaN is worst.
double score_of(double value, const std::string& mode) {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  return mode == "max" ? -value : value;
}

bool counts(const TrialRow& row) { return row.state != "error" && !row.last_result.empty(); }

/// Whether `one` is nowhere worse than `other`, and better somewhere. Lower is better.
bool beats(const std::vector<double>& one, const std::vector<double>& other) {
  return one != other && std::ranges::equal(one, other, std::less_equal<>());
}

}  // namespace

std::optional<TrialNumber> best_of_rows(ExperimentStore& store, const std::string& metric, const std::string& mode,
                                        const std::string& scope, bool finite) {
  check_ranking_mode(mode);
  constexpr const char* kScopes[] = {"last", "all", "avg", "last-5-avg", "last-10-avg"};
  if (std::ranges::find(kScopes, scope) == std::end(kScopes))
    throw ConfigError("[tune] scope is " + in_quotes(scope) + "; it must be last, all, avg, last-5-avg or last-10-avg");
  std::optional<std::pair<double, TrialNumber>> best;
  std::vector<double> scores;  // of one trial
  const auto read = [&](std::string_view json) {
    const auto value = number_at(parse_json(json, "metrics"), metric);
    if (value && (!finite || std::isfinite(*value))) scores.push_back(score_of(*value, mode));
  };
  const auto see = [&](TrialNumber number, double score) {
    if (!best || score < best->first) best = {score, number};
  };
  std::vector<TrialNumber> numbers;
  store.for_each_trial([&](const TrialRow& row) {
    if (!counts(row)) return;
    if (scope != "last") return numbers.push_back(row.number);
    scores.clear();
    read(row.last_result);
    if (!scores.empty()) see(row.number, scores[0]);
  });
  for (const TrialNumber number : numbers) {
    scores.clear();
    store.for_each_result(number, read);
    const std::size_t newest = scope == "last-5-avg" ? 5 : scope == "last-10-avg" ? 10 : scores.size();
    if (scores.size() > newest) scores.erase(scores.begin(), scores.end() - static_cast<std::ptrdiff_t>(newest));
    if (scores.empty()) continue;
    see(number, scope == "all"
                    ? *std::ranges::min_element(scores)
                    : std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size()));
  }
  return best ? std::optional(best->second) : std::nullopt;
}

std::vector<TrialNumber> front_of_rows(ExperimentStore& store, const std::vector<std::string>& metrics,
                                       const std::vector<std::string>& modes) {
  if (metrics.size() < 2 || modes.size() != metrics.size())
    throw ConfigError("[tune] a Pareto front needs several metrics and a mode for each, not metrics (" +
                      joined(metrics, ", ") + ") and modes (" + joined(modes, ", ") + ")");
  for (const std::string& mode : modes) check_ranking_mode(mode);
  std::vector<std::vector<double>> points;
  std::vector<TrialNumber> numbers;
  store.for_each_trial([&](const TrialRow& row) {
    if (!counts(row)) return;
    const Value result = parse_json(row.last_result, "metrics");
    std::vector<double> point;
    for (std::size_t i = 0; i < metrics.size(); ++i)
      if (const auto value = number_at(result, metrics[i]); value && std::isfinite(*value))
        point.push_back(score_of(*value, modes[i]));
    if (point.size() < metrics.size()) return;
    points.push_back(std::move(point));
    numbers.push_back(row.number);
  });
  std::vector<TrialNumber> front;
  for (const std::size_t index : pareto_front(points)) front.push_back(numbers[index]);
  return front;
}

std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points) {
  std::vector<std::size_t> ordered(points.size());
  std::iota(ordered.begin(), ordered.end(), 0);
  std::ranges::stable_sort(ordered, [&](std::size_t a, std::size_t b) { return points[a] < points[b]; });
  std::vector<std::size_t> front;
  for (const std::size_t index : ordered)  // one that comes later cannot beat an earlier one
    if (std::ranges::none_of(front, [&](std::size_t other) { return beats(points[other], points[index]); }))
      front.push_back(index);
  std::ranges::sort(front);
  return front;
}

}  // namespace lockstep::tune
