#include <lockstep/error.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "commands.h"
#include "sys/files.h"
#include "tune/experiment_chart.h"
#include "tune_experiment.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// All kinds that the experiment has enough parameters and metrics for.
std::vector<std::string> fitting_kinds(const tune::Experiment& experiment) {
  const tune::ExperimentSettings& settings = experiment.settings();
  const std::size_t parameters = tune::Space::parse(settings.param_space).dimensions().size();
  std::vector<std::string> kinds{"history"};
  if (parameters >= 1) kinds.insert(kinds.end(), {"parallel", "importance"});
  if (parameters >= 2) kinds.push_back("contour");
  if (settings.metrics.size() >= 2) kinds.push_back("pareto");
  return kinds;
}

void check_usage(const TunePlotOptions& options) {
  const fs::path output(options.output);
  if (!output.extension().empty() && output.extension() != ".html" && !fs::is_directory(output))
    throw UsageError("[tune] --output is " + in_quotes(options.output) +
                     "; it must be a directory or end with .html; lockstep.tune.plot in Python also writes .png");
  if (output.extension() == ".html" && options.kinds.size() != 1)
    throw UsageError("[tune] --output names one file, but " +
                     (options.kinds.empty() ? "all kinds" : std::to_string(options.kinds.size()) + " kinds") +
                     " are to be plotted; name one kind, or a directory");
  const bool has_pair = options.kinds.size() == 1 && (options.kinds[0] == "contour" || options.kinds[0] == "pareto");
  if (!has_pair && !(options.x.empty() && options.y.empty()))
    throw UsageError("[tune] --x and --y belong to the kind contour or pareto; name one of these kinds alone");
}

std::string page_of(const OpenedExperiment& opened, const tune::PlotOptions& plot, const Goal& goal, bool has_mode) {
  tune::Chart chart = tune::read_chart(*opened.experiment, tune::further_metrics(*opened.experiment, plot));
  for (tune::Chart::Metric& metric : chart.metrics)
    if (metric.name == goal.metric && has_mode) metric.maximize = goal.maximize;
  return tune::plot_html(chart, plot);
}

}  // namespace

int tune_plot(const TunePlotOptions& options) {
  check_usage(options);
  const OpenedExperiment opened = open_experiment(options.experiment);
  const tune::Experiment& experiment = *opened.experiment;
  const Goal goal = goal_of(experiment.settings(), options.metric, options.mode);
  const bool is_file = fs::path(options.output).extension() == ".html" && !fs::is_directory(options.output);
  const fs::path directory = options.output.empty() ? opened.path / "plots" : fs::path(options.output);
  for (const std::string& kind : options.kinds.empty() ? fitting_kinds(experiment) : options.kinds) {
    const std::string page = page_of(opened, {.kind = kind, .metric = options.metric, .x = options.x, .y = options.y},
                                     goal, !options.mode.empty());
    const fs::path file = is_file ? directory : directory / (kind + ".html");
    if (file.has_parent_path()) sys::files().make_directories(file.parent_path());
    sys::files().replace_file(file, page);
    std::printf("%s\n", printable(fs::absolute(file).lexically_normal().native()).c_str());
  }
  return 0;
}

}  // namespace lockstep::cli
