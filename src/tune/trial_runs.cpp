#include "tune/trial_runs.h"

#include <lockstep/callback.h>
#include <lockstep/error.h>

#include <algorithm>
#include <map>

#include "base/failure.h"
#include "base/json.h"
#include "base/text.h"
#include "store/part_writer.h"
#include "store/run_directory.h"
#include "store/run_settings.h"
#include "train/resource_pool.h"
#include "tune/stored_result.h"

namespace lockstep::tune {
namespace {

constexpr const char* kTrainLoopConfig = "train_loop_config";
constexpr const char* kScalingConfig = "scaling_config";

bool has_parts(const Value& config) { return config.contains(kTrainLoopConfig) || config.contains(kScalingConfig); }

/// `into` with the values of `more`, dict by dict.
void merge(Value& into, const Value& more) {
  if (!into.is_object() || !more.is_object()) {
    into = more;
    return;
  }
  for (const auto& [key, value] : more.items())
    if (into.contains(key))
      merge(into[key], value);
    else
      into[key] = value;
}

ScalingConfig changed(const ScalingConfig& scaling, const Value& more) {
  store::RunSettings settings;
  settings.scaling = scaling;
  Value all = store::to_value(settings);
  for (const auto& [key, value] : more.items())
    if (!all.contains(key))
      throw ConfigError("[tune] scaling_config has no " + in_quotes(key) + "; it has num_workers, use_gpu, " +
                        "resources_per_worker and placement_strategy");
  merge(all, more);
  return store::run_settings_from(all).scaling;
}

/// Makes the newest checkpoint of a run a copy of another run's.
void adopt(const std::filesystem::path& directory, const std::filesystem::path& source) {
  store::RunDirectory run(directory);
  store::Manifest manifest = store::read_manifest(sys::files(), source);
  manifest.seq = run.next_seq();
  const std::string partial = store::RunDirectory::partial_name(manifest.seq);
  manifest.files = store::PartWriter(sys::files(), run.path() / partial).copy_directory(source);
  run.commit(partial, manifest);
}

/// Tells the loop what a run reports.
class Watch final : public Callback {
 public:
  Watch(TrialLoop& loop, Job& job, bool decides, bool replaces)
      : loop_(loop), job_(job), decides_(decides), replaces_(replaces) {}
  std::string name() const override { return "Tuner"; }
  bool may_stop() const override { return decides_; }
  void on_result(const Value& metrics) override {
    numbers_[metrics.value("training_iteration", std::int64_t{0})] = ++reports_;
    ends_ = loop_.report(job_, stored_result(metrics), "");
  }
  bool should_stop(const Value&) override { return ends_; }
  void on_checkpoint(const Checkpoint& checkpoint, const Value& metrics) override {
    const auto report = numbers_.find(metrics.value("training_iteration", std::int64_t{0}));
    if (const auto path = checkpoint.path(); path && report != numbers_.end()) {
      loop_.on_checkpoint(job_, path->string(), report->second, replaces_);
      numbers_.erase(numbers_.begin(), report);
    }
  }

 private:
  TrialLoop& loop_;
  Job& job_;
  const bool decides_;
  const bool replaces_;  ///< the run removes older checkpoints
  bool ends_ = false;
  std::int64_t reports_ = job_.start.iterations;
  /// The trial's reports by the run's training_iteration, since the newest checkpoint. They differ after the trial has
  /// taken over the checkpoint of another one.
  std::map<std::int64_t, std::int64_t> numbers_;
};

}  // namespace

void TrialRuns::check(const Value& param_space) {
  if (!has_parts(param_space)) return;
  for (const auto& [key, value] : param_space.items())
    if (key != kTrainLoopConfig && key != kScalingConfig)
      throw ConfigError("[tune] param_space has " + in_quotes(key) + " beside train_loop_config or scaling_config; " +
                        "put parameters of the training function into train_loop_config");
}

int TrialRuns::fitting(const DataParallelTrainer& trainer) {
  const ScalingConfig& scaling = trainer.options_.scaling;
  std::map<std::string, double> each = scaling.resources_per_worker;
  if (scaling.use_gpu) each.emplace("GPU", 1);
  const auto [least, most] = scaling.num_workers;
  if (least != most)
    throw ConfigError("[tune] num_workers is (" + std::to_string(least) + ", " + std::to_string(most) +
                      "); it must be an int for trials, which run side by side");
  return fitting(std::move(each), most);
}

int TrialRuns::fitting(std::map<std::string, double> each, int workers) {
  each.emplace("CPU", 1);
  const auto total = train::process_resources().total();
  double fits = 1e6;
  for (const auto& [name, amount] : each) {
    const auto found = total.find(name);
    if (amount > 0) fits = std::min(fits, (found == total.end() ? 0 : found->second) / (amount * workers) + 1e-9);
  }
  return std::max(1, static_cast<int>(fits));
}

DataParallelTrainer TrialRuns::prepared(const Job& job, Callback& watch) const {
  DataParallelTrainer made = trainer_;
  TrainerOptions& options = made.options_;
  const Value& config = job.start.config;
  if (has_parts(config)) {
    if (config.contains(kTrainLoopConfig)) merge(options.config, config.at(kTrainLoopConfig));
    if (config.contains(kScalingConfig)) options.scaling = changed(options.scaling, config.at(kScalingConfig));
  } else {
    merge(options.config, config);
  }
  options.run = run_;
  options.run.name = job.start.name;
  options.run.storage_path = loop_.directory();
  options.run.callbacks = {&watch};
  options.run.failure.max_failures = 0;
  options.run.stop.clear();
  options.run.verbose = 0;
  validate(options);

  const bool own = tidy(job);
  made.restore_ = store::RunDirectory(job.directory).exists();
  made.goes_on_ = made.restore_;
  if (made.restore_ && !own) {
    adopt(job.directory, job.start.checkpoint);
  } else if (!made.restore_ && !job.start.checkpoint.empty()) {
    options.resume_from = Checkpoint::from_directory(job.start.checkpoint);
  }
  return made;
}

TrialLoop::Outcome TrialRuns::run(Job& job) const {
  TrialLoop::Outcome outcome;
  Watch watch(loop_, job, decides_, run_.checkpoint.num_to_keep.has_value());
  try {
    const RunHandle run = prepared(job, watch).start();
    loop_.set_kill(job, [run] { run.stop(); });
    const Result result = run.wait();
    const bool cut = result.state == "interrupted" || result.state == "preempted" ||
                     (loop_.interrupted() && result.state == "stopped");
    outcome.interrupted = cut && !job.ending;
  } catch (const TrainingError& error) {
    outcome.error = error.result().error;
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    outcome.error = failure.type + ": " + failure.message;
  }
  loop_.set_kill(job, {});
  return outcome;
}

}  // namespace lockstep::tune
