#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "commands.h"
#include "metrics/metric_texts.h"
#include "run_summary.h"
#include "sys/directory_lock.h"
#include "table.h"
#include "tune/experiment_chart.h"
#include "tune/shown_value.h"
#include "tune/trial_results.h"
#include "tune_experiment.h"

namespace lockstep::cli {
namespace {

using tune::Trial;
using tune::TrialState;

constexpr std::size_t kRows = 20;      ///< of the table unless --limit says otherwise
constexpr std::size_t kFailures = 5;   ///< whose errors are printed
constexpr std::size_t kLongest = 100;  ///< characters of an error

/// What the command prints, as a table or as JSON.
struct Shown {
  std::string path;
  const tune::Experiment& experiment;
  std::string state;
  Goal goal;                         ///< of the best
  std::vector<std::string> metrics;  ///< with a column of their own
  std::vector<Trial> trials;         ///< sorted, all of them
  std::optional<std::size_t> best;   ///< in `trials`
};

std::string experiment_state(const OpenedExperiment& opened) {
  if (sys::DirectoryLock::is_held(opened.path).value_or(false)) return "running";
  return opened.experiment->is_done() ? "finished" : "unfinished";
}

/// Best first; trials without the metric are last. An empty metric: by number.
void sort_trials(std::vector<Trial>& trials, const Goal& by) {
  if (by.metric.empty()) return;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const double value = number_at(trials[i].last_result, by.metric).value_or(NAN);
    order.emplace_back(std::isnan(value) ? INFINITY : by.maximize ? -value : value, i);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Trial> sorted;
  sorted.reserve(trials.size());
  for (const auto& [value, index] : order) sorted.push_back(std::move(trials[index]));
  trials = std::move(sorted);
}

Shown examine(const OpenedExperiment& opened, const TuneShowOptions& options) {
  const tune::Experiment& experiment = *opened.experiment;
  const tune::ExperimentSettings& settings = experiment.settings();
  std::error_code ignored;
  Shown shown{std::filesystem::weakly_canonical(opened.path, ignored).native(),
              experiment,
              experiment_state(opened),
              goal_of(settings, options.metric, options.mode),
              settings.metrics,
              {},
              {}};
  const Goal sort = options.sort == "trial" ? Goal{}
                    : options.sort.empty()  ? shown.goal
                                            : goal_of(settings, options.sort, options.mode);
  for (const std::string& name : {shown.goal.metric, sort.metric})
    if (!name.empty() && std::find(shown.metrics.begin(), shown.metrics.end(), name) == shown.metrics.end()) {
      tune::check_is_reported(experiment, name);
      shown.metrics.push_back(name);
    }
  for (tune::TrialNumber number = 0; number < experiment.size(); ++number)
    shown.trials.push_back(experiment.trial(number));
  std::optional<tune::TrialNumber> best;
  if (!shown.goal.metric.empty()) best = experiment.best(shown.goal.metric, shown.goal.mode(), "last");
  sort_trials(shown.trials, sort);
  for (std::size_t i = 0; best && i < shown.trials.size(); ++i)
    if (shown.trials[i].number == *best) shown.best = i;
  return shown;
}

double seconds_of(const Trial& trial, const std::string& state) {
  if (trial.started <= 0) return -1;
  const bool runs = trial.state == TrialState::running && state == "running";
  if (trial.ended <= 0 && !runs) return number_at(trial.last_result, "time_total_s").value_or(-1);
  return std::max(0.0, (runs ? unix_seconds(wall_now()) : trial.ended) - trial.started);
}

std::string value_text(const Value* value) {
  if (value == nullptr || value->is_null()) return "-";
  if (value->is_number_float()) return metrics::short_number(value->get<double>());
  return value->is_string() ? value->get<std::string>() : first_characters(to_json(*value), 24);
}

Colour colour_of_trial(TrialState state) {
  switch (state) {
    case TrialState::running:
      return Colour::blue;
    case TrialState::terminated:
      return Colour::green;
    case TrialState::error:
      return Colour::red;
    default:
      return Colour::yellow;
  }
}

/// The parameters' names in the configuration.
std::vector<std::string> parameters_of(const tune::Experiment& experiment) {
  std::vector<std::string> names;
  const tune::Space space = tune::Space::parse(experiment.settings().param_space);
  for (const tune::Dimension& dimension : space.dimensions())
    if (std::find(names.begin(), names.end(), dimension.name) == names.end()) names.push_back(dimension.name);
  return names;
}

/// A parameter as users think of it.
std::string short_name(const std::string& name) {
  constexpr std::string_view kLoop = "train_loop_config/";
  return name.starts_with(kLoop) ? name.substr(kLoop.size()) : name;
}

std::vector<std::string> other_metrics(const Trial& trial, const std::vector<std::string>& shown) {
  auto texts = metrics::metric_texts(trial.last_result, metrics::Keys::reported, std::string::npos);
  std::erase_if(texts, [&](const std::string& text) {
    return std::any_of(shown.begin(), shown.end(), [&](const auto& name) { return text.starts_with(name + "="); });
  });
  return texts;
}

void print_table(const Shown& shown, std::size_t rows) {
  const std::vector<std::string> parameters = parameters_of(shown.experiment);
  std::vector<std::string> titles{"TRIAL", "STATE", ">ITERATIONS", ">TIME"};
  for (const std::string& name : parameters) titles.push_back(">" + printable(short_name(name)));
  for (const std::string& name : shown.metrics) titles.push_back(">" + printable(name));
  titles.push_back("OTHER METRICS");
  Table table(titles);
  for (std::size_t i = 0; i < std::min(rows, shown.trials.size()); ++i) {
    const Trial& trial = shown.trials[i];
    const bool is_best = shown.best == i;
    const double seconds = seconds_of(trial, shown.state);
    std::vector<Table::Cell> row{{trial.name, is_best ? Colour::bold : Colour::plain},
                                 {tune::name_of(trial.state), colour_of_trial(trial.state)},
                                 {std::to_string(trial.iterations)},
                                 {seconds < 0 ? "-" : human_duration(seconds)}};
    const Value config = tune::shown(trial.config);
    for (const std::string& name : parameters) row.push_back({value_text(find_path(config, name))});
    for (const std::string& name : shown.metrics)
      row.push_back({value_text(find_path(trial.last_result, name)), is_best ? Colour::bold : Colour::plain});
    row.push_back({joined(other_metrics(trial, shown.metrics), " ")});
    table.add(std::move(row));
  }
  std::fputs(table.to_text(OutputStyle::of_stdout()).c_str(), stdout);
}

std::string counts_text(const tune::Experiment& experiment) {
  std::vector<std::string> counts;
  for (const auto state :
       {TrialState::running, TrialState::pending, TrialState::paused, TrialState::terminated, TrialState::error})
    if (const auto count = experiment.count(state); count > 0)
      counts.push_back(std::to_string(count) + " " + tune::name_of(state));
  return joined(counts, ", ");
}

void print_best(const Shown& shown) {
  if (!shown.best) return;
  const Trial& best = shown.trials[*shown.best];
  std::printf("\nbest: %s, %s=%s (%s)\n", printable(best.name).c_str(), printable(shown.goal.metric).c_str(),
              value_text(find_path(best.last_result, shown.goal.metric)).c_str(), shown.goal.mode());
  std::printf("  config: %s\n", printable(to_json(tune::shown(best.config))).c_str());
  if (!best.checkpoint.empty()) std::printf("  checkpoint: %s\n", printable(best.checkpoint).c_str());
}

/// Errors may be tracebacks; their last line says most.
void print_failures(const Shown& shown) {
  std::size_t failures = 0;
  for (const Trial& trial : shown.trials) {
    if (trial.state != TrialState::error || ++failures > kFailures) continue;
    const auto end = trial.error.find_last_not_of(" \n");
    std::string line = trial.error.substr(0, end == std::string::npos ? 0 : end + 1);
    if (const auto begin = line.rfind('\n'); begin != std::string::npos) line = line.substr(begin + 1);
    std::printf("%s%s failed: %s\n", failures == 1 ? "\n" : "", printable(trial.name).c_str(),
                first_characters(printable(line), kLongest).c_str());
  }
  if (failures > kFailures) std::printf("and %zu more failed; --json has all errors\n", failures - kFailures);
}

void print_restore(const Shown& shown) {
  const bool errors = shown.experiment.count(TrialState::error) > 0;
  if (shown.state == "running" || (shown.state == "finished" && !errors)) return;
  std::printf("\nto %s: tune.Tuner.restore(%s, trainable%s).fit()\n",
              shown.state == "finished" ? "run the failed trials again" : "go on", in_quotes(shown.path).c_str(),
              errors ? ", resume_errored=True" : "");
}

/// JSON has no NaN and infinity.
Value finite(Value value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return nullptr;
  if (value.is_structured())
    for (auto& item : value) item = finite(std::move(item));
  return value;
}

Value trial_object(const Shown& shown, const Trial& trial) {
  const double seconds = seconds_of(trial, shown.state);
  return {{"number", trial.number},
          {"id", trial.id},
          {"name", trial.name},
          {"state", tune::name_of(trial.state)},
          {"iterations", trial.iterations},
          {"failures", trial.failures},
          {"config", finite(tune::shown(trial.config))},
          {"metrics", finite(trial.last_result)},
          {"error", or_null(trial.error)},
          {"checkpoint", or_null(trial.checkpoint)},
          {"started", or_null(trial.started)},
          {"ended", or_null(trial.ended)},
          {"duration", seconds < 0 ? Value(nullptr) : Value(seconds)}};
}

void print_tune_json(const Shown& shown, std::size_t rows) {
  const tune::ExperimentSettings& settings = shown.experiment.settings();
  Value counts = Value::object(), trials = Value::array();
  for (const auto state :
       {TrialState::pending, TrialState::running, TrialState::paused, TrialState::terminated, TrialState::error})
    counts[tune::name_of(state)] = shown.experiment.count(state);
  for (std::size_t i = 0; i < std::min(rows, shown.trials.size()); ++i)
    trials.push_back(trial_object(shown, shown.trials[i]));
  const Value all = {{"name", settings.name},
                     {"path", shown.path},
                     {"state", shown.state},
                     {"metrics", settings.metrics},
                     {"modes", settings.modes},
                     {"searcher", settings.searcher},
                     {"scheduler", settings.scheduler},
                     {"counts", std::move(counts)},
                     {"best", shown.best ? trial_object(shown, shown.trials[*shown.best]) : Value(nullptr)},
                     {"trials", std::move(trials)}};
  std::fputs(to_pretty_json(all).c_str(), stdout);
}

}  // namespace

int tune_show(const TuneShowOptions& options) {
  const OpenedExperiment opened = open_experiment(options.experiment);
  const Shown shown = examine(opened, options);
  if (options.json) {
    print_tune_json(shown, options.limit.value_or(std::string::npos));
    return 0;
  }
  const std::size_t rows = options.limit.value_or(kRows);
  std::printf("%s: %s, %zu trials%s%s\n", printable(shown.experiment.settings().name).c_str(), shown.state.c_str(),
              shown.trials.size(), shown.trials.empty() ? "" : ": ", counts_text(shown.experiment).c_str());
  if (!shown.trials.empty() && rows > 0) {
    std::fputs("\n", stdout);
    print_table(shown, rows);
  }
  if (shown.trials.size() > rows && rows > 0)
    std::printf("%zu more; --limit %zu shows all\n", shown.trials.size() - rows, shown.trials.size());
  print_best(shown);
  print_failures(shown);
  print_restore(shown);
  return 0;
}

}  // namespace lockstep::cli
