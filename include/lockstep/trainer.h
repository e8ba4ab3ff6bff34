#pragma once

#include <lockstep/config.h>
#include <lockstep/result.h>
#include <lockstep/session.h>
#include <string>

namespace lockstep {

/// A training function: runs once on every worker.
using TrainFunction = void (*)(Session&);

/// First thing in main. In a worker process it runs the registered function and never returns; elsewhere it only
/// remembers the arguments, which workers get as they are.
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
  /// Throws ConfigError when the options are wrong or the function is not registered. Starts nothing.
  explicit DataParallelTrainer(TrainFunction function, TrainerOptions options = {});

  /// Runs to the end and returns what came of it. Throws TrainingError when the run failed for good, EngineError or
  /// StorageError when it could not run. One at a time per process.
  Result fit();

  /// A trainer that goes on with a run: same directory, latest good checkpoint. fit() of a finished run returns its
  /// result at once. `path` is the run's directory, or its name in the default storage path, here and below.
  static DataParallelTrainer restore(const std::filesystem::path& path, TrainFunction function);
  /// Whether `path` holds a run.
  static bool can_restore(const std::filesystem::path& path);

 protected:
  std::string trainer_ = "DataParallelTrainer";  ///< the class's name, for run names and run.json

 private:
  std::string function_;
  TrainerOptions options_;
  bool restore_ = false;
};

namespace detail {
/// Two functions may have one name: static ones of two files, or those of two namespaces.
bool register_function(const char* name, TrainFunction function);
/// The session of this process if it is a worker, whatever its trainer; else nullptr.
Session* running_session();
bool set_default_agent(const char* path);
}  // namespace detail

}  // namespace lockstep

/// Makes a function known to worker processes. At namespace scope, in the file that defines the function.
#define LOCKSTEP_TRAIN_FUNCTION(function) LOCKSTEP_REGISTER_(function, __LINE__)
#define LOCKSTEP_REGISTER_(function, line) LOCKSTEP_REGISTER_AT_(function, line)
#define LOCKSTEP_REGISTER_AT_(function, line)                     \
  [[maybe_unused]] static const bool lockstep_registered_##line = \
      ::lockstep::detail::register_function(#function, &(function))
