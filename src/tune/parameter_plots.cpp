// The plots over parameters: parallel coordinates and contour.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tune/plot_data.h"
#include "tune/plots.h"
#include "tune/svg.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kMostLines = 1000;
constexpr std::size_t kMostPoints = 5000;
constexpr int kCells = 40;       ///< of a contour, each way
constexpr int kMostLabels = 12;  ///< of choices on an axis

/// An axis over the places of a parameter's values.
struct ParameterAxis {
  const Chart& chart;
  std::size_t dimension;
  double from, to;

  const Domain& domain() const { return chart.dimensions[dimension].domain; }
  double at(double value) const { return from + place_in(domain(), value) * (to - from); }
  /// Values and their texts.
  std::vector<std::pair<double, std::string>> ticks() const {
    std::vector<std::pair<double, std::string>> found;
    if (domain().kind == Domain::Kind::category) {
      const int step = (domain().choices + kMostLabels - 1) / kMostLabels;
      for (int i = 0; i < domain().choices; i += std::max(1, step)) found.emplace_back(i, chart.label(dimension, i));
      return found;
    }
    Axis axis{domain().lower, domain().upper, domain().log, from, to};
    if (domain().kind == Domain::Kind::normal)
      axis = {domain().mean - 2 * domain().sd, domain().mean + 2 * domain().sd, false, from, to};
    for (const double tick : axis.ticks()) found.emplace_back(tick, short_number(tick));
    return found;
  }
  /// How many cells a contour has along it.
  int cells() const { return domain().kind == Domain::Kind::category ? std::max(1, domain().choices) : kCells; }
};

}  // namespace

std::string parallel_html(const Chart& chart, std::size_t metric) {
  constexpr double kTop = 60, kBottom = 470, kLeft = 60, kRight = 800;
  const std::vector<double> values = chart.values(metric);
  const QualityScale scale = QualityScale::of(chart, metric);
  const Axis value_axis = Axis::around(values, kBottom, kTop);
  std::vector<ParameterAxis> axes;
  for (std::size_t d = 0; d < chart.dimensions.size(); ++d) axes.push_back({chart, d, kBottom, kTop});
  const auto x_of = [&](std::size_t column) {
    return kLeft +
           (kRight - kLeft) * static_cast<double>(column) / static_cast<double>(std::max<std::size_t>(1, axes.size()));
  };

  Picture picture;
  std::vector<std::size_t> drawn = drawn_trials(chart, metric, kMostLines);
  std::stable_sort(drawn.begin(), drawn.end(),  // the best lie on top
                   [&](std::size_t a, std::size_t b) { return scale.share(values[a]) < scale.share(values[b]); });
  for (const std::size_t i : drawn) {
    std::vector<std::pair<double, double>> line;
    for (std::size_t d = 0; d < axes.size(); ++d)  // a parameter that is not active is passed by
      if (const double value = chart.trials[i].point[d]; !std::isnan(value))
        line.emplace_back(x_of(d), axes[d].at(value));
    line.emplace_back(x_of(axes.size()), value_axis.at(values[i]));
    const double share = scale.share(values[i]);
    picture.path(line,
                 "class='trial' stroke='" + quality_colour(share) + "' stroke-width='1.5' opacity='" +
                     short_number(0.35 + 0.6 * share, 2) + "'",
                 hover_of(chart, chart.trials[i]));
  }
  for (std::size_t d = 0; d < axes.size(); ++d) {
    picture.line(x_of(d), kTop, x_of(d), kBottom, "axis");
    for (const auto& [value, text] : axes[d].ticks())
      picture.text(x_of(d) + 5, axes[d].at(value) + 4, "start", text, "small");
    // Names stand at two heights, so that neighbours do not touch.
    picture.text(x_of(d), d % 2 == 0 ? kTop - 12 : kBottom + 24, d == 0 ? "start" : "middle", chart.dimensions[d].name);
  }
  picture.line(x_of(axes.size()), kTop, x_of(axes.size()), kBottom, "axis");
  for (const double tick : value_axis.ticks())
    picture.text(x_of(axes.size()) + 5, value_axis.at(tick) + 4, "start", short_number(tick), "small");
  picture.text(x_of(axes.size()), kTop - 12, "middle", metric_title(chart.metrics[metric]));
  if (drawn.empty())
    picture.text(480, 260, "middle", "no trial has reported this metric yet", "grey");
  else
    picture.colour_scale(scale.worst, scale.best, "");
  return picture.page(chart.title + ": parallel coordinates", drawn_note(drawn.size(), chart.trials.size()));
}

std::string contour_html(const Chart& chart, std::size_t metric, std::pair<std::size_t, std::size_t> parameters,
                         std::uint64_t seed) {
  constexpr double kLeft = 110, kRight = 840, kTop = 40, kBottom = 470;
  const ParameterAxis x{chart, parameters.first, kLeft, kRight}, y{chart, parameters.second, kBottom, kTop};
  const std::vector<double> values = chart.values(metric);
  const QualityScale scale = QualityScale::of(chart, metric);
  std::vector<Point> points;
  for (const Chart::Trial& trial : chart.trials) points.push_back(trial.point);
  const Forest forest = Forest::fit(chart.dimensions, points, values, {.seed = seed});

  Picture picture;
  Point point(chart.dimensions.size(), std::numeric_limits<double>::quiet_NaN());
  const int columns = std::min(x.cells(), kCells), rows = std::min(y.cells(), kCells);
  const double width = (kRight - kLeft) / columns, height = (kBottom - kTop) / rows;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      point[x.dimension] = value_at(x.domain(), (column + 0.5) / columns);
      point[y.dimension] = value_at(y.domain(), (row + 0.5) / rows);
      const double expected = forest.marginal(point);
      if (std::isnan(expected)) continue;
      picture.box(kLeft + column * width, kBottom - (row + 1) * height, width + 0.5, height + 0.5,
                  "opacity='0.45' fill='" + quality_colour(scale.share(expected)) + "'");
    }
  }
  for (const auto& [value, text] : x.ticks()) picture.text(x.at(value), kBottom + 18, "middle", text, "small");
  for (const auto& [value, text] : y.ticks()) picture.text(kLeft - 8, y.at(value) + 4, "end", text, "small");
  picture.line(kLeft, kBottom, kRight, kBottom, "axis");
  picture.line(kLeft, kBottom, kLeft, kTop, "axis");
  picture.text((kLeft + kRight) / 2, kBottom + 42, "middle", chart.dimensions[x.dimension].name);
  picture.text(kLeft, kTop - 12, "start", chart.dimensions[y.dimension].name);

  std::size_t drawn = 0;
  for (const std::size_t i : drawn_trials(chart, metric, kMostPoints)) {
    const Point& at = chart.trials[i].point;
    if (std::isnan(at[x.dimension]) || std::isnan(at[y.dimension])) continue;
    picture.circle(x.at(at[x.dimension]), y.at(at[y.dimension]), 5,
                   "class='point' fill='" + quality_colour(scale.share(values[i])) + "'",
                   hover_of(chart, chart.trials[i]));
    ++drawn;
  }
  if (drawn == 0)
    picture.text(480, 260, "middle", "no trial has both parameters and this metric yet", "grey");
  else
    picture.colour_scale(scale.worst, scale.best, metric_title(chart.metrics[metric]));
  return picture.page(
      chart.title + ": " + chart.dimensions[x.dimension].name + " and " + chart.dimensions[y.dimension].name,
      drawn_note(drawn, chart.trials.size()) +
          " The background is what the other trials let expect, averaged over all other parameters.");
}

}  // namespace lockstep::tune
