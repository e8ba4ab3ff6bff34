#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tune/chart.h"
#include "tune/importance.h"

namespace lockstep::tune {

struct PlotOptions {
  std::string kind = "history";  ///< history, parallel, importance, contour or pareto
  std::string metric = {};       ///< empty: the first
  /// Contour: parameters; pareto: metrics. Empty: the most important ones; the first two.
  std::string x = {}, y = {};
  std::uint64_t seed = 0;  ///< of the forest behind importance and contour
};

/// A plot as an HTML page with an SVG picture in it. The page loads nothing, follows the reader's choice of light or
/// dark, and shows details of a trial under the mouse. Large experiments: at most 5000 trials are drawn, the best among
/// them. Throws ConfigError if there is no such kind, metric or parameter, or too few of them.
std::string plot_html(const Chart& chart, const PlotOptions& options);

/// The numbers behind the plots, for other ways to draw them.
std::vector<Importance> chart_importance(const Chart& chart, std::size_t metric, std::uint64_t seed);
/// The index of the metric named in the options. Throws ConfigError.
std::size_t chosen_metric(const Chart& chart, const std::string& name);
/// The two parameters, or for "pareto" the two metrics, that the options name or leave open. Throws ConfigError.
std::pair<std::size_t, std::size_t> chosen_pair(const Chart& chart, const PlotOptions& options);
/// What is drawn of so many trials: all, or evenly many with the best ones. In the order of their numbers.
std::vector<std::size_t> drawn_trials(const Chart& chart, std::size_t metric, std::size_t most);

/// Each kind on its own.
std::string history_html(const Chart& chart, std::size_t metric);
std::string parallel_html(const Chart& chart, std::size_t metric);
std::string importance_html(const Chart& chart, std::size_t metric, std::uint64_t seed);
std::string contour_html(const Chart& chart, std::size_t metric, std::pair<std::size_t, std::size_t> parameters,
                         std::uint64_t seed);
std::string pareto_html(const Chart& chart, std::pair<std::size_t, std::size_t> metrics);

}  // namespace lockstep::tune
