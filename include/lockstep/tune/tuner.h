#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <lockstep/config.h>
#include <lockstep/session.h>
#include <lockstep/trainer.h>
#include <lockstep/tune/callback.h>
#include <lockstep/tune/result_grid.h>
#include <lockstep/tune/schedulers.h>
#include <lockstep/tune/search.h>
#include <lockstep/tune/stoppers.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {
namespace tune {

/// One name or several: "loss", or {"loss", "size"}.
class Names {
 public:
  Names() = default;
  // NOLINTBEGIN(google-explicit-constructor): names are written as text, without naming this type
  Names(const char* name) : names_{name} {}
  Names(std::string name) : names_{std::move(name)} {}
  Names(std::initializer_list<std::string> names) : names_(names) {}
  Names(std::vector<std::string> names) : names_(std::move(names)) {}
  // NOLINTEND(google-explicit-constructor)
  const std::vector<std::string>& list() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// Seconds, or a duration.
struct TimeBudget {
  // NOLINTBEGIN(google-explicit-constructor): written as 60, or as std::chrono::minutes(1)
  TimeBudget(double seconds) : seconds(seconds) {}
  template <class Count, class Period>
  TimeBudget(std::chrono::duration<Count, Period> time) : seconds(std::chrono::duration<double>(time).count()) {}
  // NOLINTEND(google-explicit-constructor)
  double seconds;
};

/// What is searched for, by what, and how much at once.
struct TuneConfig {
  Names metric{};                ///< "/" joins nested keys; several are for searchers that can (NSGA2Search)
  Names mode{};                  ///< "min" or "max"; one for all metrics, or one for each; needed to compare trials
  int num_samples = 1;           ///< trials for each grid point; -1: until the time budget is used up
  SearchAlgorithm search_alg{};  ///< by default random values, and every grid point
  TrialScheduler scheduler{};    ///< by default trials run to their end
  std::optional<int> max_concurrent_trials{};  ///< nothing: as many as the resources allow
  /// Then the trials that run end: functions in threads with their next report, processes and runs at once.
  std::optional<TimeBudget> time_budget_s{};
  /// Functions: trials are threads of this process. False: each is a process that fit() forks; see Tuner.
  bool reuse_workers = true;
  /// The name of a trial, and of its directory; called once for each.
  std::function<std::string(const TrialInfo&)> trial_name_creator{};
  std::optional<std::uint64_t> seed{};  ///< nothing: a different one every time; it is stored
  bool fail_fast = false;               ///< the first trial that fails ends the others, as time_budget_s does
  Stop stop{};                          ///< ends trials or the experiment early, beside RunConfig::stop
};

/// What a Tuner tries: a function, which runs in threads of this process, or a trainer, whose trials are runs.
class Trainable {
 public:
  /// A function that is called with `const Value& config`, with `Session&`, or with both. It calls Session::report(),
  /// or returns its final metrics: a dict, or the number that is the one metric. Several threads call it at once. The
  /// session is the only rank of its run. report() throws StopTraining when the trial is to end; see Session. A
  /// function that gives Session::report() checkpoints begins with Session::checkpoint(), to go on after an
  /// interruption.
  template <class Function>
  requires(!std::is_base_of_v<DataParallelTrainer, Function>)
      Trainable(Function function)  // NOLINT(google-explicit-constructor)
      : function_(adapted(std::move(function))) {
    if constexpr (std::is_convertible_v<Function, TrainFunction>) name_ = name_of(function);
  }
  /// A trainer: param_space describes Session::config() of its function, whose other values are those of the trainer's
  /// options. With the keys "train_loop_config" and "scaling_config" it describes that and the ScalingConfig.
  Trainable(const DataParallelTrainer& trainer);  // NOLINT(google-explicit-constructor)

  const std::string& name() const { return name_; }
  /// Empty for a trainer.
  const std::function<Value(Session&)>& function() const { return function_; }
  const std::shared_ptr<const DataParallelTrainer>& trainer() const { return trainer_; }
  /// What a trial of a function needs; a CPU that is not named counts as one.
  const std::map<std::string, double>& resources() const { return resources_; }

 private:
  friend Trainable with_resources(Trainable trainable, std::map<std::string, double> resources);

  static std::string name_of(TrainFunction function);

  template <class Call>
  static Value result_of(const Call& call) {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return Value();
    } else {
      return call();
    }
  }
  template <class Function>
  static std::function<Value(Session&)> adapted(Function function) {
    if constexpr (std::is_invocable_v<const Function&, const Value&, Session&>) {
      return [function](Session& session) { return result_of([&] { return function(session.config(), session); }); };
    } else if constexpr (std::is_invocable_v<const Function&, Session&>) {
      return [function](Session& session) { return result_of([&] { return function(session); }); };
    } else {
      static_assert(
          std::is_invocable_v<const Function&, const Value&>,
          "a trainable is a trainer, or a function of (const Value&), (Session&) or (const Value&, Session&)");
      return [function](Session& session) { return result_of([&] { return function(session.config()); }); };
    }
  }

  std::string name_ = "function";
  std::function<Value(Session&)> function_;
  std::shared_ptr<const DataParallelTrainer> trainer_;
  std::map<std::string, double> resources_;
};

/// A function whose trials need these resources, such as {{"CPU", 2}, {"GPU", 0.5}}: no more of them run at once than
/// the machine has. Throws ConfigError for a trainer, whose ScalingConfig says what it needs, and if a trial does not
/// fit.
Trainable with_resources(Trainable trainable, std::map<std::string, double> resources);

}  // namespace tune

/// The arguments of a Tuner besides its trainable.
struct TunerOptions {
  Value param_space = Value::object();  ///< see <lockstep/tune/space.h>
  tune::TuneConfig tune_config{};
  /// Of the experiment; if it is as by default, that of the trainer. `failure` is each trial's, and `callbacks` are
  /// tune::Callbacks.
  RunConfig run_config{};
};

/// Tries configurations and keeps all that happens in a directory, with a database, from which restore() continues.
/// For one thread at a time.
///
/// With reuse_workers = false, each trial of a function begins with the globals that this process has when fit() is
/// called, in a process of its own: what it changes or leaks ends with it, a crash is its own failure, and it can be
/// ended from outside. fit() forks once, before it starts threads; other threads of the program are not in the forks,
/// so call it before they hold locks that the function needs.
class Tuner {
 public:
  /// Throws ConfigError if an option is wrong. Starts nothing.
  explicit Tuner(tune::Trainable trainable, TunerOptions options = {});

  /// Runs all trials. A trial that fails does not end the others: ResultGrid::errors() has them. Throws ConfigError if
  /// the experiment cannot begin or a trial does not report the metric, StorageError if the disk refuses. Ctrl-C ends
  /// it cleanly: it returns when the trials have seen Session::stopping() or made their next report, and the signal is
  /// raised again; a second one ends the process.
  ResultGrid fit();
  /// The results of the experiment, which fit() has run or restore() has found.
  ResultGrid get_results() const;

  struct RestoreOptions {
    bool resume_errored = false;   ///< failed trials go on from their newest checkpoint
    bool restart_errored = false;  ///< failed trials begin anew
    // What the database does not have:
    Value param_space{};  ///< the experiment's, if it has a sample_from()
    tune::Stop stop{};    ///< functions; stoppers are restored
    std::vector<lockstep::Callback*> callbacks{};
    std::function<std::string(const tune::TrialInfo&)> trial_name_creator{};
    std::shared_ptr<tune::Searcher> search_alg{};  ///< a searcher of your own: a new object
  };
  /// A tuner that continues an experiment as if it had never stopped. Here and below, `path` is the experiment's
  /// directory, or its name in the default storage path. Throws ConfigError if there is none.
  static Tuner restore(const std::filesystem::path& path, tune::Trainable trainable);
  static Tuner restore(const std::filesystem::path& path, tune::Trainable trainable, const RestoreOptions& again);
  /// Whether `path` holds an experiment.
  static bool can_restore(const std::filesystem::path& path);

 private:
  tune::Trainable trainable_;
  TunerOptions options_;
  std::filesystem::path path_;                                     ///< of the experiment; empty before fit()
  std::optional<RestoreOptions> again_{};                          ///< nothing: it is a new one
  bool is_restored_ = false;                                       ///< another object ran a part of it
  std::vector<std::function<Value(const Value& spec)>> computed_;  ///< of the space's sample_from()
};

namespace tune {
using lockstep::ResultGrid;
using lockstep::Tuner;
}  // namespace tune
using tune::TuneConfig;

}  // namespace lockstep
