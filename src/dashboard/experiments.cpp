#include "dashboard/experiments.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "dashboard/page_json.h"
#include "tune/experiment.h"
#include "tune/experiment_chart.h"
#include "tune/experiment_store.h"
#include "tune/shown_value.h"

namespace lockstep::dashboard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestText = 2000;
constexpr std::size_t kMostKept = 64;

/// The directory of an experiment, held open: SQLite reaches its files through the descriptor, and none is a link.
struct OpenedDirectory {
  OpenedDirectory(const fs::path& shown, const sys::BeneathFiles& files)
      : descriptor(files.open_directory(shown)), path("/proc/self/fd/" + std::to_string(descriptor.get())) {
    for (const char* name : {"experiment.sqlite", "experiment.sqlite-wal", "experiment.sqlite-shm"}) {
      struct stat status {};
      const bool is_there = ::fstatat(descriptor.get(), name, &status, AT_SYMLINK_NOFOLLOW) == 0;
      if (is_there && !S_ISREG(status.st_mode))
        throw StorageError("[dashboard] " + in_quotes((shown / name).native()) + " is not a file");
      if (is_there)
        version += std::to_string(status.st_size) + "." + std::to_string(status.st_mtim.tv_sec) + "." +
                   std::to_string(status.st_mtim.tv_nsec) + ";";
    }
  }
  sys::Descriptor descriptor;
  fs::path path;
  std::string version;  ///< changes with the database
};

std::unique_ptr<tune::Experiment> open(const OpenedDirectory& directory) {
  return tune::Experiment::open(directory.path, {.read_only = true});
}

Value trial_value(const tune::Trial& trial) {
  return {{"number", trial.number},
          {"name", trial.name},
          {"state", tune::name_of(trial.state)},
          {"config", tune::shown(trial.config)},
          {"last_result", trial.last_result},
          {"iterations", trial.iterations},
          {"failures", trial.failures},
          {"error", first_characters(trial.error, kLongestText)},
          {"started", or_null(trial.started)},
          {"ended", or_null(trial.ended)}};
}

}  // namespace

std::string listed_experiment(const std::string& id, const fs::path& path, const sys::BeneathFiles& files) {
  Value value = {{"id", id}, {"name", path.filename().string()}, {"error", ""}};
  try {
    const OpenedDirectory directory(path, files);
    const auto store = tune::ExperimentStore::open(directory.path, true);
    const auto settings = store->settings();
    const auto setting = [&](const char* key) {
      const auto found = settings.find(key);
      return found == settings.end() ? Value(nullptr) : parse_json(found->second, key);
    };
    const Value metrics = setting("metrics"), modes = setting("modes");
    value["metrics"] = metrics;
    value["modes"] = modes;
    value["created"] = setting("created");
    const std::string metric = metrics.is_array() && !metrics.empty() ? metrics[0].get<std::string>() : "";
    const bool is_max = modes.is_array() && !modes.empty() && modes[0] == "max";
    Value states = Value::object(), best = nullptr;
    double updated = 0;
    store->for_each_trial([&](const tune::TrialRow& row) {
      states[row.state] = number_in<int>(states, row.state.c_str()) + 1;
      updated = std::max({updated, row.started, row.ended});
      if (metric.empty() || row.last_result.empty()) return;
      const auto number = number_at(parse_json(row.last_result, "a result"), metric);
      if (!number || *number != *number) return;
      if (best.is_null() || (is_max ? *number > best["value"] : *number < best["value"]))
        best = {{"metric", metric}, {"value", *number}, {"order", is_max ? "max" : "min"}, {"trial", row.name}};
    });
    value["states"] = states;
    value["best"] = best;
    value["updated"] = or_null(updated);
  } catch (const std::exception& error) {
    value["error"] = error.what();
  }
  return page_json(std::move(value));
}

std::string Experiments::trials_json(const fs::path& path) const {
  const OpenedDirectory directory(path, files_);
  const auto experiment = open(directory);
  const tune::ExperimentSettings& settings = experiment->settings();
  Value trials = Value::array();
  for (tune::TrialNumber number = 0; number < experiment->size(); ++number)
    trials.push_back(trial_value(experiment->trial(number)));
  Value value = {{"name", settings.name},
                 {"metrics", settings.metrics},
                 {"modes", settings.modes},
                 {"num_samples", settings.num_samples},
                 {"searcher", tune::shown(settings.searcher)},
                 {"scheduler", tune::shown(settings.scheduler)},
                 {"trials", std::move(trials)}};
  const Value plot = tune::plot_value(tune::read_chart(*experiment), {.kind = "parallel"});
  value["dimensions"] = plot["dimensions"];
  value["points"] = Value::array();
  for (const Value& trial : plot["trials"]) value["points"].push_back(trial["point"]);
  return page_json(std::move(value)) + "\n";
}

std::string Experiments::plot_json(const fs::path& path, const std::string& kind, const std::string& metric,
                                   const std::string& x, const std::string& y) {
  if (kind != "importance" && kind != "pareto")
    throw ConfigError("[dashboard] there is no plot " + in_quotes(kind) + "; there are importance and pareto");
  const OpenedDirectory directory(path, files_);
  const std::string key = path.native() + '\0' + kind + '\0' + metric + '\0' + x + '\0' + y;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = kept_.find(key);
    if (found != kept_.end() && found->second.version == directory.version) return found->second.text;
  }
  const auto experiment = open(directory);
  const tune::PlotOptions options{.kind = kind, .metric = metric, .x = x, .y = y};
  const tune::Chart chart = tune::read_chart(*experiment, tune::further_metrics(*experiment, options));
  Value value = tune::plot_value(chart, options);
  value.erase("trials");
  std::string text = page_json(std::move(value)) + "\n";
  const std::scoped_lock lock(mutex_);
  if (kept_.size() >= kMostKept) kept_.clear();
  kept_[key] = {directory.version, text};
  return text;
}

}  // namespace lockstep::dashboard
