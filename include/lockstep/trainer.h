#pragma once

#include <lockstep/config.h>
#include <lockstep/dataset.h>
#include <lockstep/result.h>
#include <lockstep/run_handle.h>
#include <lockstep/session.h>
#include <string>

namespace lockstep {

namespace tune {
class TrialRuns;
}

/// A training function: runs once on every worker.
using TrainFunction = void (*)(Session&);

/// Call it first in main. In a worker process it runs the registered function and never returns; elsewhere it only
/// stores the arguments, which workers get unchanged.
void init(int argc, char** argv);

/// Runs a registered function on many workers.
///
///     void train(lockstep::Session& session) { session.report({{"rank", session.world_rank()}}); }
///     LOCKSTEP_TRAIN_FUNCTION(train);
///     int main(int argc, char** argv) {
///       lockstep::init(argc, argv);
///       auto result = lockstep::DataParallelTrainer(train, {.scaling = {.num_workers = 4}}).fit();
///     }
class DataParallelTrainer {
 public:
  /// Throws ConfigError if the options are wrong or the function is not registered. Starts nothing.
  explicit DataParallelTrainer(TrainFunction function, TrainerOptions options = {});

  /// The data sets that Session::dataset_shard() gives, by name. Call it before fit(); after restore() too, as a run
  /// directory does not keep them. Throws ConfigError if the configuration is wrong or names another data set.
  ///
  ///     trainer.datasets({{"train", lockstep::read_parquet("train/*.parquet")}}).fit();
  DataParallelTrainer& datasets(const std::map<std::string, DatasetPlan>& plans, const DataConfig& config = {});

  /// Runs to the end and returns the result. Throws TrainingError if the run failed for good, EngineError or
  /// StorageError if it could not run. If the run was preempted, the program ends with exit code 75.
  Result fit();

  /// The same in a new thread, which also calls the callbacks. Throws ConfigError or StorageError if the run cannot
  /// begin; wait() throws all later errors.
  RunHandle start();

  /// A trainer that continues a run: same directory, latest valid checkpoint. fit() of a finished run returns its
  /// result at once. Here and below, `path` is the run's directory, or its name in the default storage path.
  static DataParallelTrainer restore(const std::filesystem::path& path, TrainFunction function);
  /// Whether `path` holds a run.
  static bool can_restore(const std::filesystem::path& path);

 protected:
  std::string trainer_ = "DataParallelTrainer";  ///< the class's name, for run names and run.json

 private:
  friend class tune::TrialRuns;
  RunHandle prepare(bool observed);

  std::string function_;
  Bytes data_;  ///< of datasets(), as workers get them
  TrainerOptions options_;
  bool restore_ = false;
  bool goes_on_ = false;  ///< restores a finished run too: a trial that was paused
};

namespace detail {
/// Two functions may have the same name: static ones of two files, or those of two namespaces.
bool register_function(const char* name, TrainFunction function);
/// The name of a registered function; otherwise empty.
std::string function_name(TrainFunction function);
/// The session of this process if it is a worker of any trainer, otherwise nullptr.
Session* running_session();
bool set_default_agent(const char* path);
}  // namespace detail

}  // namespace lockstep

/// Registers a function for worker processes. Use it at namespace scope, in the file that defines the function.
#define LOCKSTEP_TRAIN_FUNCTION(function) LOCKSTEP_REGISTER_(function, __LINE__)
#define LOCKSTEP_REGISTER_(function, line) LOCKSTEP_REGISTER_AT_(function, line)
#define LOCKSTEP_REGISTER_AT_(function, line)                     \
  [[maybe_unused]] static const bool lockstep_registered_##line = \
      ::lockstep::detail::register_function(#function, &(function))
