#include "tune_experiment.h"

#include <lockstep/error.h>

#include <algorithm>

#include "base/text.h"
#include "run_summary.h"
#include "store/find_run.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool is_experiment(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "experiment.sqlite", ignored);
}

/// Why a path is no experiment.
std::string what_is_at(const fs::path& path) {
  std::error_code ignored;
  const std::string named = in_quotes(path.native());
  if (is_experiment(path.parent_path()))
    return named + " is a trial of the experiment " + in_quotes(path.parent_path().native());
  if (is_run(path)) return named + " is a run, not an experiment; see `lockstep runs`";
  if (fs::is_directory(path, ignored)) return named + " has no experiment.sqlite";
  return named + (fs::exists(path, ignored) ? " is no directory" : " does not exist");
}

}  // namespace

OpenedExperiment open_experiment(const std::string& name) {
  if (name.empty()) throw ConfigError("[tune] the experiment's name is empty; give its directory, or its name");
  std::vector<std::string> found;
  for (fs::path place : store::places_of_run(name)) {
    if (!place.has_filename()) place = place.parent_path();  // "digits/"
    if (place.filename() == "experiment.sqlite") place = place.parent_path();
    if (is_experiment(place)) return {place, tune::Experiment::open(place, {.read_only = true})};
    found.push_back(what_is_at(place));
  }
  throw ConfigError("[tune] there is no experiment " + in_quotes(name) + ": " + joined(found, "; ") +
                    "; give the directory that holds experiment.sqlite");
}

Goal goal_of(const tune::ExperimentSettings& settings, const std::string& metric, const std::string& mode) {
  Goal goal{metric};
  if (metric.empty() && !settings.metrics.empty()) goal.metric = settings.metrics.front();
  const auto known = std::find(settings.metrics.begin(), settings.metrics.end(), goal.metric);
  const auto index = static_cast<std::size_t>(known - settings.metrics.begin());
  goal.maximize = mode.empty() ? index < settings.modes.size() && settings.modes[index] == "max" : mode == "max";
  return goal;
}

}  // namespace lockstep::cli
