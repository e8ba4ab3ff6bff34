#include "tune/plot_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <lockstep/error.h>

#include "base/text.h"
#include "tune/plots.h"

namespace lockstep::tune {
namespace {

std::size_t index_of(const std::vector<std::string>& names, const std::string& wanted, const std::string& what) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw ConfigError("[tune.plot] there is no " + what + " " + in_quotes(wanted) +
                    "; there are: " + (names.empty() ? "none" : joined(closest_first(names, wanted), ", ")));
}

std::vector<std::string> metric_names(const Chart& chart) {
  std::vector<std::string> names;
  for (const Chart::Metric& metric : chart.metrics) names.push_back(metric.name);
  return names;
}

}  // namespace

QualityScale QualityScale::of(const Chart& chart, std::size_t metric) {
  std::vector<double> sorted;
  for (const double value : chart.values(metric))
    if (std::isfinite(value)) sorted.push_back(value);
  if (sorted.empty()) return {};
  std::sort(sorted.begin(), sorted.end());
  const double reach = 1.5 * (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]);
  double low = sorted.front(), high = sorted.back();
  if (reach > 0 && std::isfinite(reach)) {
    if (chart.metrics[metric].maximize) low = std::max(low, sorted[sorted.size() / 4] - reach);
    if (!chart.metrics[metric].maximize) high = std::min(high, sorted[sorted.size() * 3 / 4] + reach);
  }
  return chart.metrics[metric].maximize ? QualityScale{low, high} : QualityScale{high, low};
}

double QualityScale::share(double value) const {
  if (best == worst) return 0.5;
  const double found = (value / 2 - worst / 2) / (best / 2 - worst / 2);
  return std::isnan(found) ? 0 : std::clamp(found, 0.0, 1.0);
}

std::string hover_of(const Chart& chart, const Chart::Trial& trial) {
  std::string text = trial.name;
  if (!trial.state.empty()) text += ", " + trial.state;
  for (std::size_t i = 0; i < chart.metrics.size() && i < trial.values.size(); ++i)
    text += "; " + chart.metrics[i].name + " = " + short_number(trial.values[i], 6);
  for (std::size_t i = 0; i < chart.dimensions.size() && i < trial.point.size(); ++i)
    if (!std::isnan(trial.point[i])) text += "; " + chart.dimensions[i].name + " = " + chart.label(i, trial.point[i]);
  return text;
}

std::string metric_title(const Chart::Metric& metric) { return metric.name + (metric.maximize ? " (max)" : " (min)"); }

std::string drawn_note(std::size_t drawn, std::size_t all) {
  if (drawn == all) return std::to_string(all) + (all == 1 ? " trial." : " trials.");
  return std::to_string(drawn) + " of " + std::to_string(all) + " trials are drawn.";
}

std::vector<std::size_t> drawn_trials(const Chart& chart, std::size_t metric, std::size_t most) {
  std::vector<std::size_t> all(chart.trials.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const std::vector<double> values = chart.values(metric);
  std::erase_if(all, [&](std::size_t i) { return !std::isfinite(values[i]); });
  if (all.size() <= most) return all;
  // Half of them are the best ones, the others are spread evenly.
  std::vector<std::size_t> order = all;
  const bool maximize = chart.metrics[metric].maximize;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return maximize ? values[a] > values[b] : values[a] < values[b];
  });
  std::vector<std::size_t> chosen(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most / 2));
  const std::size_t rest = most - most / 2, others = order.size() - most / 2;
  for (std::size_t i = 0; i < rest; ++i) chosen.push_back(order[most / 2 + i * others / rest]);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<Importance> chart_importance(const Chart& chart, std::size_t metric, std::uint64_t seed) {
  std::vector<Point> points;
  for (const Chart::Trial& trial : chart.trials) points.push_back(trial.point);
  return Forest::fit(chart.dimensions, points, chart.values(metric), {.seed = seed}).importance();
}

std::size_t chosen_metric(const Chart& chart, const std::string& name) {
  if (chart.metrics.empty())
    throw ConfigError("[tune.plot] the experiment has no metric of its own; name one that the trials reported");
  return name.empty() ? 0 : index_of(metric_names(chart), name, "metric");
}

std::pair<std::size_t, std::size_t> chosen_pair(const Chart& chart, const PlotOptions& options) {
  const bool is_pareto = options.kind == "pareto";
  std::vector<std::string> names = metric_names(chart);
  if (!is_pareto) {
    names.clear();
    for (const Dimension& dimension : chart.dimensions) names.push_back(dimension.name);
  }
  if (names.size() < 2)
    throw ConfigError("[tune.plot] this plot needs two " + std::string(is_pareto ? "metrics" : "parameters") +
                      "; the experiment has " + std::to_string(names.size()) +
                      (is_pareto ? "; name two that the trials reported as x and y" : "; try history"));
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!is_pareto && (options.x.empty() || options.y.empty())) {
    const auto shares = chart_importance(chart, chosen_metric(chart, options.metric), options.seed);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shares[a].total > shares[b].total; });
  }
  const std::string what = is_pareto ? "metric" : "parameter";
  const auto other_than = [&](std::size_t taken) { return order[0] == taken ? order[1] : order[0]; };
  std::size_t x = options.x.empty() ? order[0] : index_of(names, options.x, what);
  const std::size_t y = options.y.empty() ? other_than(x) : index_of(names, options.y, what);
  if (options.x.empty()) x = other_than(y);
  if (x == y)
    throw ConfigError("[tune.plot] x and y are both " + in_quotes(names[x]) + "; name two different " + what + "s");
  return {x, y};
}

std::string plot_html(const Chart& chart, const PlotOptions& options) {
  if (options.kind == "pareto") return pareto_html(chart, chosen_pair(chart, options));
  const std::vector<std::string> kinds{"history", "parallel", "importance", "contour", "pareto"};
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end())
    throw ConfigError("[tune.plot] there is no kind " + in_quotes(options.kind) +
                      "; there are: " + joined(kinds, ", "));
  const std::size_t metric = chosen_metric(chart, options.metric);
  if (options.kind == "parallel") return parallel_html(chart, metric);
  if (options.kind == "importance") return importance_html(chart, metric, options.seed);
  if (options.kind == "contour") return contour_html(chart, metric, chosen_pair(chart, options), options.seed);
  return history_html(chart, metric);
}

}  // namespace lockstep::tune
