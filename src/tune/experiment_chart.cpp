#include "tune/experiment_chart.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "tune/shown_value.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kLongestChoice = 40;
constexpr int kGridPlaces = 40;

std::string choice_text(const Value& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : to_json(value);
  return text_length(text) <= kLongestChoice ? text : first_characters(text, kLongestChoice - 1) + "…";
}

Point point_of(const Space& space, const Value& config) {
  try {
    return space.point(config);
  } catch (const ConfigError&) {
    Point point;
    for (const Dimension& dimension : space.dimensions()) {
      const bool is_number = dimension.domain.kind != Domain::Kind::category;
      const auto number = is_number ? number_at(config, dimension.name) : std::nullopt;
      point.push_back(number.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
    return point;
  }
}

/// The texts of the choices that trials made.
void add_labels(Chart& chart, const Point& point, const Value& config) {
  for (std::size_t d = 0; d < chart.dimensions.size(); ++d) {
    const Domain& domain = chart.dimensions[d].domain;
    if (domain.kind != Domain::Kind::category || !(point[d] >= 0) || point[d] >= domain.choices) continue;
    const auto choice = static_cast<std::size_t>(point[d]);
    auto& labels = chart.labels[d];
    for (std::size_t i = labels.size(); i <= choice; ++i) labels.push_back(std::to_string(i));
    if (const Value* value = find_path(config, chart.dimensions[d].name)) labels[choice] = choice_text(shown(*value));
  }
}

/// JSON and Python's None have no NaN in common; null is what both know.
Value number_or_null(double number) { return std::isfinite(number) ? Value(number) : Value(nullptr); }

Value numbers_or_null(const std::vector<double>& numbers) {
  Value list = Value::array();
  for (const double number : numbers) list.push_back(number_or_null(number));
  return list;
}

Value dimension_value(const Chart& chart, std::size_t d) {
  static constexpr const char* kKinds[] = {"real", "integer", "category", "normal"};
  const Domain& domain = chart.dimensions[d].domain;
  Value labels = Value::array();
  if (domain.kind == Domain::Kind::category)
    for (int i = 0; i < domain.choices; ++i) labels.push_back(chart.label(d, i));
  return {{"name", chart.dimensions[d].name},
          {"kind", kKinds[static_cast<int>(domain.kind)]},
          {"log", domain.log},
          {"lower", domain.lower},
          {"upper", domain.upper},
          {"labels", labels}};
}

Value grid_value(const Chart& chart, std::size_t metric, std::pair<std::size_t, std::size_t> pair, std::uint64_t seed) {
  std::vector<Point> points;
  for (const Chart::Trial& trial : chart.trials) points.push_back(trial.point);
  const Forest forest = Forest::fit(chart.dimensions, points, chart.values(metric), {.seed = seed});
  const auto places = [&](std::size_t d) {
    const Domain& domain = chart.dimensions[d].domain;
    const int count = domain.kind == Domain::Kind::category ? domain.choices : kGridPlaces;
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(value_at(domain, (i + 0.5) / count));
    return values;
  };
  const std::vector<double> x = places(pair.first), y = places(pair.second);
  Value rows = Value::array();
  Point point(chart.dimensions.size(), std::numeric_limits<double>::quiet_NaN());
  for (const double at_y : y) {
    std::vector<double> row;
    for (const double at_x : x) {
      point[pair.first] = at_x;
      point[pair.second] = at_y;
      row.push_back(forest.marginal(point));
    }
    rows.push_back(numbers_or_null(row));
  }
  return {{"x", x}, {"y", y}, {"values", std::move(rows)}};
}

}  // namespace

const char* name_of(TrialState state) {
  static constexpr const char* kNames[] = {"pending", "running", "paused", "terminated", "error"};
  return kNames[static_cast<int>(state)];
}

Chart read_chart(const Experiment& experiment, const std::vector<std::string>& more) {
  const ExperimentSettings& settings = experiment.settings();
  const Space space = Space::parse(settings.param_space);
  Chart chart;
  chart.title = settings.name;
  chart.dimensions = space.dimensions();
  chart.labels.resize(chart.dimensions.size());
  for (std::size_t i = 0; i < settings.metrics.size(); ++i)
    chart.metrics.push_back({settings.metrics[i], i < settings.modes.size() && settings.modes[i] == "max"});
  for (const std::string& name : more) {
    const bool maximize = name.starts_with('-');
    chart.metrics.push_back({maximize ? name.substr(1) : name, maximize});
  }
  std::vector<bool> found(chart.metrics.size());
  for (TrialNumber number = 0; number < experiment.size(); ++number) {
    const Trial trial = experiment.trial(number);
    Chart::Trial shown{trial.name, name_of(trial.state), point_of(space, trial.config), {}};
    for (std::size_t i = 0; i < chart.metrics.size(); ++i) {
      const auto value = number_at(trial.last_result, chart.metrics[i].name);
      found[i] = found[i] || value;
      shown.values.push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
    add_labels(chart, shown.point, trial.config);
    chart.trials.push_back(std::move(shown));
  }
  for (std::size_t i = settings.metrics.size(); i < chart.metrics.size(); ++i)
    if (!found[i])
      throw ConfigError("[tune] no trial has reported a number " + in_quotes(chart.metrics[i].name) +
                        "; check the name: nested keys are joined by /");
  return chart;
}

std::vector<std::string> further_metrics(const Experiment& experiment, const PlotOptions& options) {
  std::vector<std::string> further;
  const auto& known = experiment.settings().metrics;
  const auto add = [&](const std::string& name) {
    const bool is_known = name.empty() || std::find(known.begin(), known.end(), name) != known.end() ||
                          std::find(further.begin(), further.end(), name) != further.end();
    if (!is_known) further.push_back(name);
  };
  add(options.metric);
  if (options.kind == "pareto") {
    add(options.x);
    add(options.y);
  }
  return further;
}

Value plot_value(const Chart& chart, const PlotOptions& options) {
  Value metrics = Value::array(), dimensions = Value::array(), trials = Value::array();
  for (const Chart::Metric& metric : chart.metrics)
    metrics.push_back({{"name", metric.name}, {"maximize", metric.maximize}});
  for (std::size_t d = 0; d < chart.dimensions.size(); ++d) dimensions.push_back(dimension_value(chart, d));
  for (const Chart::Trial& trial : chart.trials)
    trials.push_back({{"name", trial.name},
                      {"state", trial.state},
                      {"point", numbers_or_null(trial.point)},
                      {"values", numbers_or_null(trial.values)}});
  Value all = {{"title", chart.title}, {"metrics", metrics}, {"dimensions", dimensions}, {"trials", trials}};
  if (options.kind == "pareto") {
    const auto pair = chosen_pair(chart, options);
    all["x"] = pair.first;
    all["y"] = pair.second;
    all["front"] = chart.pareto_front(pair.first, pair.second);
    return all;
  }
  const std::size_t metric = chosen_metric(chart, options.metric);
  all["metric"] = metric;
  if (options.kind == "importance") {
    all["importance"] = Value::array();
    for (const Importance& share : chart_importance(chart, metric, options.seed))
      all["importance"].push_back({{"alone", share.alone}, {"total", share.total}});
  } else if (options.kind == "contour") {
    const auto pair = chosen_pair(chart, options);
    all["x"] = pair.first;
    all["y"] = pair.second;
    all["grid"] = grid_value(chart, metric, pair, options.seed);
  }
  return all;
}

}  // namespace lockstep::tune
