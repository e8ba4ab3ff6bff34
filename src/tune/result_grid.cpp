#include <lockstep/tune/result_grid.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "store/run_directory.h"
#include "tune/experiment.h"
#include "tune/find_experiment.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using tune::TrialState;

/// What the trial's directory holds, if it is one of a run that can be read.
Result result_in(const fs::path& directory) {
  if (store::RunDirectory(directory).exists()) try {
      return Result::from_path(directory);
    } catch (const StorageError&) {
    } catch (const ConfigError&) {
    }
  Result result;
  result.path = directory;
  return result;
}

/// As Result::state; pending and paused trials are those of an experiment that ended before them.
const char* state_word(TrialState state) {
  switch (state) {
    case TrialState::error:
      return "failed";
    case TrialState::terminated:
      return "finished";
    case TrialState::running:
      return "running";
    default:
      return "stopped";
  }
}

/// Metric and mode: those that are given, or those of the experiment.
std::pair<std::string, std::string> objective_of(const tune::ExperimentSettings& settings, std::string metric,
                                                 std::string mode) {
  const auto& metrics = settings.metrics;
  if (metric.empty() && metrics.size() != 1)
    throw ConfigError("[ResultGrid] metric is missing, and there " +
                      (metrics.empty() ? "is none in the TuneConfig" : "are several: " + joined(metrics, ", ")) +
                      "; give a metric and a mode");
  if (metric.empty()) metric = metrics[0];
  if (mode.empty()) {
    const auto known = settings.extra.value("has_mode", true) ? std::ranges::find(metrics, metric) : metrics.end();
    if (known == metrics.end()) throw ConfigError(R"([ResultGrid] mode is missing; give "min" or "max")");
    mode = settings.modes[static_cast<std::size_t>(known - metrics.begin())];
  }
  return {std::move(metric), std::move(mode)};
}

}  // namespace

ResultGrid ResultGrid::from_path(const fs::path& experiment) {
  ResultGrid grid;
  grid.path_ = tune::find_experiment(experiment);
  grid.experiment_ = tune::Experiment::open(grid.path_, {.read_only = true});
  return grid;
}

std::size_t ResultGrid::size() const { return static_cast<std::size_t>(experiment_->size()); }

Result ResultGrid::operator[](std::size_t index) const {
  if (index >= size())
    throw ConfigError("[ResultGrid] there is no result " + std::to_string(index) + "; there are " +
                      std::to_string(size()));
  tune::Trial trial = experiment_->trial(static_cast<tune::TrialNumber>(index));
  Result result = result_in(path_ / trial.name);
  if (trial.last_result.is_object())
    for (const auto& [key, value] : trial.last_result.items())
      if (!result.metrics.contains(key)) result.metrics[key] = value;
  std::error_code ignored;
  if (!result.checkpoint && !trial.checkpoint.empty() && fs::exists(trial.checkpoint, ignored))
    result.checkpoint = Checkpoint::from_directory(trial.checkpoint);
  result.config = std::move(trial.config);
  result.state = state_word(trial.state);
  result.error = trial.state == TrialState::error ? std::move(trial.error) : "";
  if (result.trainer.empty()) result.trainer = experiment_->settings().extra.value("trainable", "");
  return result;
}

Result ResultGrid::get_best_result(const std::string& metric, const std::string& mode, const std::string& scope,
                                   bool filter_nan_and_inf) const {
  const auto [name, direction] = objective_of(experiment_->settings(), metric, mode);
  const auto best = experiment_->best(name, direction, scope, filter_nan_and_inf);
  if (!best)
    throw ConfigError("[ResultGrid] no trial has the metric " + in_quotes(name) + " as a " +
                      (filter_nan_and_inf ? "finite number" : "number") + "; " + std::to_string(num_errors()) + " of " +
                      std::to_string(size()) + " failed");
  return (*this)[static_cast<std::size_t>(*best)];
}

std::vector<Result> ResultGrid::get_pareto_front(const std::vector<std::string>& metrics,
                                                 const std::vector<std::string>& modes) const {
  const auto& settings = experiment_->settings();
  std::vector<Result> front;
  for (const auto number :
       experiment_->pareto_front(metrics.empty() ? settings.metrics : metrics, modes.empty() ? settings.modes : modes))
    front.push_back((*this)[static_cast<std::size_t>(number)]);
  return front;
}

std::size_t ResultGrid::num_errors() const { return static_cast<std::size_t>(experiment_->count(TrialState::error)); }

std::size_t ResultGrid::num_terminated() const {
  return static_cast<std::size_t>(experiment_->count(TrialState::terminated));
}

std::vector<TrainingError> ResultGrid::errors() const {
  std::vector<TrainingError> errors;
  if (num_errors() == 0) return errors;
  for (std::size_t i = 0; i < size(); ++i) {
    if (experiment_->trial(static_cast<tune::TrialNumber>(i)).state != TrialState::error) continue;
    auto result = std::make_shared<const Result>((*this)[i]);
    errors.emplace_back(result->error, result);
  }
  return errors;
}

}  // namespace lockstep
