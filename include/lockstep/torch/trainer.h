#pragma once

#include <lockstep/trainer.h>

namespace lockstep {

/// Runs a LibTorch training function on many workers. Works as DataParallelTrainer; register the function with
/// LOCKSTEP_TRAIN_FUNCTION in a file that includes <lockstep/torch.h>.
///
/// Workers whose function has returned wait for the others, so no rank loses a peer in the middle of a collective.
class TorchTrainer : public DataParallelTrainer {
 public:
  /// Throws ConfigError if the options are wrong or the function is not registered. Starts nothing.
  explicit TorchTrainer(TrainFunction function, TrainerOptions options = {});
  /// A trainer that continues the run at `path`: same directory, latest valid checkpoint.
  static TorchTrainer restore(const std::filesystem::path& path, TrainFunction function);

 private:
  explicit TorchTrainer(DataParallelTrainer trainer) : DataParallelTrainer(std::move(trainer)) {}
};

namespace torch::detail {

/// Runs a training function; while it runs, prepare_model() and the rest know its session.
void run(TrainFunction function, Session& session);

template <TrainFunction function>
void with_torch(Session& session) {
  run(function, session);
}

/// Registers both for worker processes; `joined` is what TorchTrainer runs.
bool register_function(const char* name, TrainFunction plain, TrainFunction joined);

}  // namespace torch::detail
}  // namespace lockstep

#undef LOCKSTEP_REGISTER_AT_
#define LOCKSTEP_REGISTER_AT_(function, line)                                                                   \
  [[maybe_unused]] static const bool lockstep_registered_##line = ::lockstep::torch::detail::register_function( \
      #function, &(function), &::lockstep::torch::detail::with_torch<&(function)>)
