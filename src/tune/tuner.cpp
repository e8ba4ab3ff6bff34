#include <lockstep/tune/tuner.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "store/run_settings.h"
#include "sys/files.h"
#include "sys/node.h"
#include "train/resource_pool.h"
#include "tune/computed_values.h"
#include "tune/experiment.h"
#include "tune/experiment_settings.h"
#include "tune/find_experiment.h"
#include "tune/function_trials.h"
#include "tune/own_searcher.h"
#include "tune/policy_files.h"
#include "tune/process_trials.h"
#include "tune/space.h"
#include "tune/trial_loop.h"
#include "tune/trial_runs.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using tune::ExperimentSettings;

/// In the settings' `extra`, for restore(): what is no setting of the experiment.
constexpr const char* kTuner = "tuner";

const RunConfig& run_config_of(const tune::Trainable& trainable, const RunConfig& given) {
  return trainable.trainer() && given == RunConfig() ? tune::TrialRuns::run_config(*trainable.trainer()) : given;
}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 21) ^ device();  // 53 bits: every reader of JSON keeps them
}

ExperimentSettings settings_from(const tune::Trainable& trainable, const TunerOptions& options) {
  const tune::TuneConfig& given = options.tune_config;
  const RunConfig& run = run_config_of(trainable, options.run_config);
  ExperimentSettings settings;
  settings.param_space = options.param_space.is_null() ? Value::object() : options.param_space;
  settings.num_samples = given.num_samples;
  settings.metrics = given.metric.list();
  settings.modes = given.mode.list();
  if (settings.modes.size() == 1) settings.modes.resize(settings.metrics.size(), settings.modes[0]);
  if (settings.modes.empty()) settings.modes.resize(settings.metrics.size(), "max");
  if (settings.metrics.empty() && given.scheduler.description.value("kind", "") == "pbt_replay") {
    settings.metrics = {"training_iteration"};  // it compares nothing, but schedulers have a metric
    settings.modes = {"max"};
  }
  settings.seed = given.seed ? *given.seed : random_seed();
  settings.searcher = given.search_alg.description;
  if (given.search_alg.own) settings.searcher = {{"kind", "custom"}, {"description", settings.searcher}};
  settings.scheduler = given.scheduler.description;
  settings.points_to_evaluate = given.search_alg.points_to_evaluate;
  settings.time_attribute = given.scheduler.time_attr;
  for (const auto& [metric, least] : run.stop) settings.stop[metric] = least;
  if (given.time_budget_s) settings.time_budget = given.time_budget_s->seconds;
  settings.max_failures = run.failure.max_failures;
  settings.fail_fast = given.fail_fast;
  store::RunSettings kept;
  kept.run = run;
  settings.extra = {
      {"trial_name_prefix", trainable.name()},
      {"trainable", trainable.name()},
      {"has_mode", given.metric.list().empty() || !given.mode.list().empty()},
      {kTuner,
       {{"run", store::to_value(kept)},
        {"verbose", run.verbose},
        {"reuse_workers", given.reuse_workers},
        {"max_concurrent_trials", given.max_concurrent_trials ? Value(*given.max_concurrent_trials) : Value()},
        {"stop", Value(given.stop.descriptions)}}}};
  return settings;
}

std::vector<tune::Callback*> callbacks_of(const RunConfig& run) {
  std::vector<tune::Callback*> callbacks;
  for (Callback* each : run.callbacks) {
    callbacks.push_back(dynamic_cast<tune::Callback*>(each));
    if (callbacks.back() == nullptr)
      throw ConfigError("[Tuner] run_config has the callback " + each->name() +
                        ", which observes one run; a Tuner has many: derive it from tune::Callback");
  }
  return callbacks;
}

/// What replaces the searcher that the settings do not describe.
std::shared_ptr<tune::PointSearcher> own_searcher(const ExperimentSettings& settings,
                                                  std::shared_ptr<tune::Searcher> own) {
  const tune::Space space = tune::Space::parse(settings.param_space);
  return tune::make_searcher(settings.searcher.at("description"), space, settings.seed,
                             std::max<int>(1, static_cast<int>(settings.metrics.size())),
                             tune::adapted(std::move(own), space, settings.modes, settings.seed));
}

void check(const tune::Trainable& trainable, const TunerOptions& options, const ExperimentSettings& settings) {
  const RunConfig& run = run_config_of(trainable, options.run_config);
  validate(TrainerOptions{.run = run});
  callbacks_of(run);
  for (const Value& each : options.tune_config.stop.descriptions) tune::make_stopper(each);
  if (!settings.param_space.is_object())
    throw ConfigError("[Tuner] param_space is " + to_json(settings.param_space) + "; it must be a dict");
  const auto& most = options.tune_config.max_concurrent_trials;
  if (most && *most < 1)
    throw ConfigError("[TuneConfig] max_concurrent_trials is " + std::to_string(*most) + "; it must be at least 1");
  const auto& own = options.tune_config.search_alg.own;
  if (settings.num_samples == -1 && !settings.time_budget && !own && settings.searcher.value("kind", "") != "grid")
    throw ConfigError("[TuneConfig] num_samples is -1 without time_budget_s: the experiment would never end");
  tune::validate(settings);
  const tune::Space space = tune::Space::parse(settings.param_space);
  if (own)
    own_searcher(settings, own);
  else
    tune::make_searcher(settings.searcher, space, settings.seed,
                        std::max<int>(1, static_cast<int>(settings.metrics.size())));
  tune::make_scheduler(settings.scheduler, settings.seed);
  if (!settings.extra.at("has_mode").get<bool>()) {
    ExperimentSettings without = settings;
    without.metrics.clear();
    without.modes.clear();
    try {
      tune::validate(without);
    } catch (const ConfigError&) {
      throw ConfigError(R"([TuneConfig] mode is missing; the searcher or the scheduler must know it: "min" or "max")");
    }
  }
  for (const Value& point : settings.points_to_evaluate) space.point(point);
  if (trainable.trainer()) tune::TrialRuns::check(settings.param_space);
}

/// A directory for a new experiment.
fs::path claim_directory(const RunConfig& run, const std::string& trainable) {
  const fs::path storage =
      fs::absolute(run.storage_path.empty() ? store::default_storage_path() : run.storage_path).lexically_normal();
  const std::string name = run.name.empty() ? trainable + "_" + date_string(wall_now()) : run.name;
  sys::files().make_directories(storage);
  for (int n = 1;; ++n) {
    fs::path directory = storage / (n == 1 ? name : name + "_" + std::to_string(n));
    const bool taken = tune::is_experiment(directory) || store::RunDirectory(directory).exists();
    if (!taken && (sys::files().make_directory(directory) || !run.name.empty())) return directory;
    if (!run.name.empty())
      throw ConfigError("[Tuner] " + directory.string() +
                        " holds an experiment or a run already; choose another name, or continue it: Tuner::restore(" +
                        in_quotes(directory.string()) + ", trainable)");
  }
}

/// Whether reports wait for a decision.
bool decides(const ExperimentSettings& settings) {
  return !settings.stop.empty() || tune::kind_of_scheduler(settings) != "fifo";
}

/// How many trials run at once.
int slots(const tune::Trainable& trainable, const ExperimentSettings& settings) {
  int most = sys::usable_cores();
  if (trainable.trainer())
    most = tune::TrialRuns::fitting(*trainable.trainer());
  else if (!trainable.resources().empty())
    most = tune::TrialRuns::fitting(trainable.resources());
  const Value& given = settings.extra.at(kTuner).at("max_concurrent_trials");
  const bool is_bounded = trainable.trainer() || !trainable.resources().empty();
  if (given.is_number_integer()) most = is_bounded ? std::min(most, given.get<int>()) : given.get<int>();
  if (settings.num_samples < 0) return most;
  const auto grid = std::max<std::int64_t>(1, tune::Space::parse(settings.param_space).grid_size());
  const auto points = static_cast<std::int64_t>(settings.points_to_evaluate.size());
  return static_cast<int>(std::min<std::int64_t>(most, settings.num_samples * grid + points));
}

}  // namespace

namespace tune {

Trainable::Trainable(const DataParallelTrainer& trainer)
    : name_(TrialRuns::class_name(trainer)), trainer_(std::make_shared<const DataParallelTrainer>(trainer)) {}

std::string Trainable::name_of(TrainFunction function) {
  const std::string name = detail::function_name(function);
  return name.empty() ? "function" : name;
}

}  // namespace tune

namespace tune {

Trainable with_resources(Trainable trainable, std::map<std::string, double> resources) {
  if (trainable.trainer_)
    throw ConfigError("[tune] with_resources() got a trainer; its ScalingConfig says what a trial needs");
  const auto total = train::process_resources().total();
  for (const auto& [name, amount] : resources) {
    const auto found = total.find(name);
    const double there = found == total.end() ? 0 : found->second;
    if (!(amount >= 0) || amount > there + 1e-9)
      throw ConfigError("[tune] a trial needs " + to_json(Value(amount)) + " " + name + ", but there are " +
                        to_json(Value(there)) + "; ask for less in with_resources()");
  }
  trainable.resources_ = std::move(resources);
  return trainable;
}

}  // namespace tune

Tuner::Tuner(tune::Trainable trainable, TunerOptions options)
    : trainable_(std::move(trainable)), options_(std::move(options)) {
  if (const Value& first = options_.tune_config.scheduler.config; !first.empty()) {
    if (!options_.param_space.empty())
      throw ConfigError("[Tuner] the scheduler has the configuration of its trial; leave out param_space");
    options_.param_space = first;
  }
  computed_ = tune::ComputedValues::of(options_.param_space).functions;
  options_.param_space = tune::ComputedValues::of(options_.param_space).space;
  check(trainable_, options_, settings_from(trainable_, options_));
}

ResultGrid Tuner::fit() {
  sys::SignalWatch signals(sys::SignalWatch::Then::later);
  {
    std::unique_ptr<tune::TrialForks> forks;  // before there are threads
    if (trainable_.function() && !options_.tune_config.reuse_workers)
      forks = std::make_unique<tune::TrialForks>(trainable_.function());
    std::unique_ptr<tune::Experiment> experiment;
    if (!again_) {
      ExperimentSettings settings = settings_from(trainable_, options_);
      if (!computed_.empty())
        settings.scheduler = {
            {"kind", "custom"}, {"of", tune::kind_of_scheduler(settings)}, {"description", settings.scheduler}};
      path_ = claim_directory(run_config_of(trainable_, options_.run_config), trainable_.name());
      settings.name = path_.filename();
      experiment = tune::Experiment::create(path_, std::move(settings));
    } else {
      experiment = tune::Experiment::open(
          path_, {.resume_errored = again_->resume_errored, .restart_errored = again_->restart_errored});
      for (const auto number : experiment->in_state(tune::TrialState::running)) {  // killed after its last report
        const tune::Trial trial = experiment->trial(number);
        store::finish_record(path_ / trial.name, trial.last_result, unix_seconds(wall_now()));
      }
    }
    again_ = RestoreOptions{};
    const ExperimentSettings& settings = experiment->settings();
    const Value& kept = settings.extra.at(kTuner);
    const RunConfig run = store::run_settings_from(kept.at("run")).run;
    if (settings.searcher.contains("description")) {
      auto& own = options_.tune_config.search_alg.own;
      if (!own)
        throw ConfigError(
            "[Tuner] the experiment has a searcher of your own, which has seen its trials already; " +
            std::string("restore it with a new one: Tuner::restore(path, trainable, {.search_alg = ...})"));
      experiment->use(own_searcher(settings, std::exchange(own, nullptr)));
    }
    if (settings.scheduler.contains("description"))
      experiment->use(std::shared_ptr<tune::Scheduler>(
          tune::computing(tune::make_scheduler(settings.scheduler.at("description"), settings.seed), computed_)));
    tune::TrialLoop::Options how{
        .directory = path_, .checkpoint = run.checkpoint, .verbose = kept.at("verbose").get<int>()};
    how.callbacks = callbacks_of(run_config_of(trainable_, options_.run_config));
    for (const Value& each : kept.value("stop", Value::array())) how.stoppers.push_back(tune::make_stopper(each));
    how.stop_functions = options_.tune_config.stop.functions;
    how.trial_name = options_.tune_config.trial_name_creator;
    const bool waits = decides(settings) || !how.stoppers.empty() || !how.stop_functions.empty();
    tune::TrialLoop loop(*experiment, std::move(how));
    if (is_restored_) loop.remember();
    is_restored_ = false;
    const int most = slots(trainable_, settings);
    if (trainable_.trainer()) {
      const tune::TrialRuns runs(loop, *trainable_.trainer(), run, waits);
      loop.run(most, signals, [&](tune::Job& job) { return runs.run(job); });
    } else {
      const tune::FunctionTrial trial{path_.filename(), trainable_.name(),
                                      settings.metrics.size() == 1 ? settings.metrics[0] : ""};
      loop.run(most, signals,
               forks ? forks->trials(loop, trial, waits) : tune::function_trials(loop, trainable_.function(), trial));
    }
    for (const auto& [name, text] : tune::policy_files(*experiment)) sys::files().replace_file(path_ / name, text);
  }
  return get_results();
}

ResultGrid Tuner::get_results() const {
  if (path_.empty()) throw ConfigError("[Tuner] there are no results yet; call fit(), or Tuner::restore(path)");
  return ResultGrid::from_path(path_);
}

Tuner Tuner::restore(const fs::path& path, tune::Trainable trainable) {
  return restore(path, std::move(trainable), RestoreOptions());
}

Tuner Tuner::restore(const fs::path& path, tune::Trainable trainable, const RestoreOptions& again) {
  const fs::path directory = tune::find_experiment(path);
  const ExperimentSettings settings = tune::Experiment::open(directory, {.read_only = true})->settings();
  if (!settings.extra.contains(kTuner))
    throw ConfigError("[Tuner] " + directory.string() +
                      " holds an experiment that Python made; continue it there: tune.Tuner.restore(path)");
  TunerOptions options;
  options.param_space = again.param_space.is_object() ? again.param_space : Value::object();
  options.run_config.callbacks = again.callbacks;
  if (!again.stop.descriptions.empty())
    throw ConfigError("[Tuner] stop has stoppers or limits, which the experiment has kept; give functions only");
  options.tune_config.stop = again.stop;
  const bool has_own = settings.searcher.contains("description");
  if (has_own != (again.search_alg != nullptr))
    throw ConfigError(has_own ? "[Tuner] search_alg is missing, and the experiment has a searcher of your own; give a "
                                "new one in RestoreOptions"
                              : "[Tuner] search_alg is given, but the experiment has kept its searcher; leave it out");
  options.tune_config.trial_name_creator = again.trial_name_creator;
  Tuner tuner(std::move(trainable), std::move(options));
  if (settings.scheduler.contains("description") || again.param_space.is_object())
    if (tuner.options_.param_space != settings.param_space)
      throw ConfigError("[Tuner] param_space " +
                        std::string(again.param_space.is_object()
                                        ? "differs from the experiment's"
                                        : "is missing, and the experiment's has sample_from()") +
                        "; give the same as before in RestoreOptions");
  tuner.options_.param_space = settings.param_space;
  tuner.options_.tune_config.reuse_workers = settings.extra.at(kTuner).value("reuse_workers", true);
  tuner.options_.tune_config.search_alg.own = again.search_alg;
  tuner.path_ = directory;
  tuner.again_ = again;
  tuner.is_restored_ = true;
  return tuner;
}

bool Tuner::can_restore(const fs::path& path) {
  try {
    tune::find_experiment(path);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace lockstep
