#include "tune/plots.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tune/plot_data.h"
#include "tune/svg.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kMostDrawn = 5000;
constexpr double kFrameLeft = 80, kFrameRight = 930, kFrameTop = 40, kFrameBottom = 480;

}  // namespace

std::string history_html(const Chart& chart, std::size_t metric) {
  const std::vector<double> values = chart.values(metric);
  const bool maximize = chart.metrics[metric].maximize;
  Picture picture;
  const Axis y = Axis::around(values, kFrameBottom, kFrameTop);
  const double last = values.empty() ? 1.0 : static_cast<double>(values.size() - 1);
  const Axis x{0, std::max(1.0, last), false, kFrameLeft, kFrameRight};
  picture.y_axis(y, kFrameLeft, kFrameRight, metric_title(chart.metrics[metric]));
  picture.x_axis(x, kFrameBottom, kFrameTop, "trial");
  const auto drawn = drawn_trials(chart, metric, kMostDrawn);
  for (const std::size_t i : drawn)
    picture.circle(x.at(static_cast<double>(i)), y.at(values[i]), 4, "class='dot point'",
                   hover_of(chart, chart.trials[i]));

  std::vector<std::pair<double, double>> steps;
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const bool is_better = best == values.size() || (maximize ? values[i] > values[best] : values[i] < values[best]);
    if (!is_better) continue;
    if (!steps.empty()) steps.emplace_back(x.at(static_cast<double>(i)), steps.back().second);
    steps.emplace_back(x.at(static_cast<double>(i)), y.at(values[i]));
    best = i;
  }
  std::string note = drawn_note(drawn.size(), chart.trials.size());
  if (best < values.size()) {
    steps.emplace_back(kFrameRight, steps.back().second);
    picture.path(steps, "class='front'", "best so far");
    picture.circle(x.at(static_cast<double>(best)), y.at(values[best]), 6, "class='best point'",
                   "best: " + hover_of(chart, chart.trials[best]));
    note += " The line is the best so far; the best of all is " + chart.trials[best].name + " with " +
            short_number(values[best], 6) + ".";
  }
  if (drawn.empty()) picture.text(480, 260, "middle", "no trial has reported this metric yet", "grey");
  return picture.page(chart.title + ": history", note);
}

std::string importance_html(const Chart& chart, std::size_t metric, std::uint64_t seed) {
  constexpr double kNames = 260;
  constexpr std::size_t kMostBars = 20;
  const auto shares = chart_importance(chart, metric, seed);
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return shares[a].total > shares[b].total; });
  const std::size_t bars = std::min(order.size(), kMostBars);
  Picture picture;
  const Axis x{0, 1, false, kNames, kFrameRight};
  picture.x_axis(x, kFrameBottom, kFrameTop, "share of the variance of " + chart.metrics[metric].name);
  const double step = (kFrameBottom - kFrameTop) / static_cast<double>(std::max<std::size_t>(bars, 4));
  for (std::size_t row = 0; row < bars; ++row) {
    const std::size_t d = order[row];
    const double y = kFrameTop + step * static_cast<double>(row) + step * 0.15;
    const std::string hover = chart.dimensions[d].name + ": " + short_number(shares[d].alone, 3) + " alone, " +
                              short_number(shares[d].total, 3) + " with interactions";
    picture.box(kNames, y, x.at(shares[d].total) - kNames, step * 0.7, "class='rest'", hover);
    picture.box(kNames, y, x.at(shares[d].alone) - kNames, step * 0.7, "class='bar'", hover);
    picture.text(kNames - 8, y + step * 0.35 + 4, "end", chart.dimensions[d].name);
    picture.text(x.at(shares[d].total) + 6, y + step * 0.35 + 4, x.at(shares[d].total) > 880 ? "end" : "start",
                 short_number(shares[d].alone, 2), "small");
  }
  const bool any = std::any_of(shares.begin(), shares.end(), [](const Importance& one) { return one.total > 0; });
  if (!any) picture.text(580, 260, "middle", "the trials do not differ in this metric, or are too few", "grey");
  std::string note = "Dark: the parameter alone; light: with its interactions (fANOVA).";
  if (bars < order.size())
    note += " The " + std::to_string(bars) + " most important of " + std::to_string(order.size()) + ".";
  return picture.page(chart.title + ": importance", note);
}

std::string pareto_html(const Chart& chart, std::pair<std::size_t, std::size_t> metrics) {
  const auto [first, second] = metrics;
  const std::vector<double> x_values = chart.values(first), y_values = chart.values(second);
  Picture picture;
  const Axis x = Axis::around(x_values, kFrameLeft, kFrameRight), y = Axis::around(y_values, kFrameBottom, kFrameTop);
  picture.y_axis(y, kFrameLeft, kFrameRight, metric_title(chart.metrics[second]));
  picture.x_axis(x, kFrameBottom, kFrameTop, metric_title(chart.metrics[first]));
  const auto front = chart.pareto_front(first, second);
  const std::set<std::size_t> on_front(front.begin(), front.end());
  std::size_t drawn = 0;
  for (const std::size_t i : drawn_trials(chart, first, kMostDrawn)) {
    if (on_front.contains(i) || !std::isfinite(y_values[i])) continue;
    picture.circle(x.at(x_values[i]), y.at(y_values[i]), 4, "class='dot point'", hover_of(chart, chart.trials[i]));
    ++drawn;
  }
  std::vector<std::pair<double, double>> steps;
  for (const std::size_t i : front) {
    if (!steps.empty()) steps.emplace_back(x.at(x_values[i]), steps.back().second);
    steps.emplace_back(x.at(x_values[i]), y.at(y_values[i]));
  }
  if (steps.size() > 1) picture.path(steps, "class='front'", "Pareto front");
  for (const std::size_t i : front)
    picture.circle(x.at(x_values[i]), y.at(y_values[i]), 6, "class='best point'", hover_of(chart, chart.trials[i]));
  if (front.empty()) picture.text(480, 260, "middle", "no trial has reported both metrics yet", "grey");
  return picture.page(chart.title + ": Pareto front", drawn_note(drawn + front.size(), chart.trials.size()) + " " +
                                                          std::to_string(front.size()) +
                                                          " of them are not beaten in both metrics by another one.");
}

}  // namespace lockstep::tune
