#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/scheduler.h"
#include "tune/searcher.h"

namespace lockstep::tune {

/// What an experiment is asked to do. Stored in its database, and read again by open().
struct ExperimentSettings {
  std::string name;
  Value param_space = Value::object();  ///< see Space
  int num_samples = 1;                  ///< per grid point; -1: until the time budget is used up
  std::vector<std::string> metrics;     ///< "/" joins nested keys; may be empty for fifo and random or grid search
  std::vector<std::string> modes;       ///< "min" or "max", one per metric
  std::uint64_t seed = 0;
  Value searcher = {{"kind", "random"}};  ///< {"kind": "custom"}: given by use()
  Value scheduler = {{"kind", "fifo"}};   ///< the same
  Value points_to_evaluate = Value::array();
  std::string time_attribute = "training_iteration";
  Value stop = Value::object();  ///< ends a trial whose metric has reached the value
  std::optional<double> time_budget;
  int max_failures = 0;  ///< of one trial; -1: no limit
  bool fail_fast = false;
  Value extra = Value::object();  ///< the caller's own, kept as it is; "trial_name_prefix" begins the names of trials
};

enum class TrialState { pending, running, paused, terminated, error };

struct Trial {
  TrialNumber number = 0;
  std::string id;    ///< "a1b2c_00003", as trial_id
  std::string name;  ///< its directory in the experiment's
  TrialState state = TrialState::pending;
  Value config;
  Value last_result;
  std::int64_t iterations = 0;  ///< reports
  int failures = 0;
  std::string error;              ///< of the last failure
  std::string checkpoint;         ///< the newest committed one, a path; empty: none
  double started = 0, ended = 0;  ///< seconds since 1970
};

/// What to do next.
struct Start {
  TrialNumber trial = 0;
  Value config;
  std::string checkpoint;       ///< go on from it; empty: from the beginning
  int attempt = 0;              ///< how often it was started before
  std::int64_t iterations = 0;  ///< reports that it goes on from
  std::string id;
  std::string name;
};

/// One experiment: chooses trials, records what they report, decides about them. It runs nothing itself: its user
/// starts what next() says and tells what happened. All state is in the directory's experiment.sqlite; whatever is
/// killed when, open() continues with the same trials. For one thread at a time.
class Experiment {
 public:
  /// Throws ConfigError if settings are wrong, StorageError if the directory holds an experiment or cannot be written.
  static std::unique_ptr<Experiment> create(const std::filesystem::path& directory, ExperimentSettings settings);
  /// Reads an experiment and continues it: trials that ran are pending again and go on from their newest checkpoint.
  struct Reopen {
    bool resume_errored = false;   ///< failed trials go on from their newest checkpoint
    bool restart_errored = false;  ///< failed trials begin anew
    bool read_only = false;
  };
  static std::unique_ptr<Experiment> open(const std::filesystem::path& directory, Reopen how);
  virtual ~Experiment() = default;

  /// Replaces the searcher or scheduler that the settings describe by the caller's. Before the first next(): calls that
  /// the database has are repeated on it.
  virtual void use(std::shared_ptr<PointSearcher> searcher) = 0;
  virtual void use(std::shared_ptr<Scheduler> scheduler) = 0;

  /// The trial to start now, which is then running. Nothing: none can start until another one reports or ends, or
  /// is_done().
  virtual std::optional<Start> next() = 0;
  /// Replaces a trial's name, before its first report.
  virtual void set_name(TrialNumber trial, const std::string& name) = 0;
  /// A running trial reported. `checkpoint`: committed with this report; empty: none. `last`: the caller ends the trial
  /// with this report, as "done": true in the metrics does. Throws ConfigError that lists the keys there are if a
  /// metric of the settings is missing; nothing is recorded then.
  virtual Decision on_report(TrialNumber trial, const Value& metrics, const std::string& checkpoint,
                             bool last = false) = 0;
  /// A checkpoint of a running trial was committed after its report, the `iteration`-th.
  virtual void on_checkpoint(TrialNumber trial, const std::string& checkpoint, std::int64_t iteration) = 0;
  /// A running trial ended: by itself or as on_report decided. `error`: empty unless it failed. Returns whether it will
  /// be started again (max_failures, or because it was paused).
  virtual bool on_ended(TrialNumber trial, const std::string& error) = 0;
  /// No trial is running, and none will be started.
  virtual bool is_done() const = 0;
  /// Lets no further trial start; running ones may report and end.
  virtual void stop() = 0;
  /// Makes durable all that happened so far. Otherwise it becomes so within 0.1 s.
  virtual void sync() = 0;

  virtual const ExperimentSettings& settings() const = 0;
  virtual std::int64_t size() const = 0;
  /// Trials by state.
  virtual std::int64_t count(TrialState state) const = 0;
  /// The same as numbers. After open(), those that are running were told to end, and end with the first next().
  virtual std::vector<TrialNumber> in_state(TrialState state) const = 0;
  /// Trials whose newest checkpoint must stay; see Scheduler::donors().
  virtual std::vector<TrialNumber> donors() const = 0;
  /// The checkpoints that trials would go on from now; after sync(), the ones that open() would continue with.
  virtual std::vector<std::string> checkpoints() const = 0;
  /// See Scheduler::replay_log().
  virtual Value replay_log() const = 0;
  virtual Trial trial(TrialNumber number) const = 0;
  /// All reports of a trial, as stored.
  virtual std::vector<Value> results(TrialNumber number) const = 0;
  /// The best trial of those that did not fail. `scope` "last": by last results; "all": by the best result of each;
  /// "avg", "last-5-avg" and "last-10-avg": by averages. NaN is worst; with `finite`, it and infinity do not count.
  /// Results without the metric never count. Equal trials: the first. Throws ConfigError if the mode or the scope is
  /// none.
  virtual std::optional<TrialNumber> best(const std::string& metric, const std::string& mode, const std::string& scope,
                                          bool finite = false) const = 0;
  /// The trials that no other one beats in every metric, by their last results, in the order of their numbers. Throws
  /// ConfigError unless there are several metrics and a mode for each.
  virtual std::vector<TrialNumber> pareto_front(const std::vector<std::string>& metrics,
                                                const std::vector<std::string>& modes) const = 0;
};

}  // namespace lockstep::tune
