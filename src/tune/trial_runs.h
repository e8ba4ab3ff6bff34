#pragma once

#include <lockstep/trainer.h>

#include <map>
#include <string>

#include "tune/trial_loop.h"

namespace lockstep::tune {

/// Runs trials of a trainer: each is a run in the experiment's directory. Any thread may call run().
class TrialRuns {
 public:
  /// `loop` is borrowed. `decides`: whether reports wait for the answer of the loop.
  TrialRuns(TrialLoop& loop, const DataParallelTrainer& trainer, RunConfig run, bool decides)
      : loop_(loop), trainer_(trainer), run_(std::move(run)), decides_(decides) {}

  TrialLoop::Outcome run(Job& job) const;
  /// How many runs like the trainer's fit on this machine at once; at least 1.
  static int fitting(const DataParallelTrainer& trainer);
  /// The same for trials of workers that need `each`.
  static int fitting(std::map<std::string, double> each, int workers = 1);
  /// The run settings of the trainer, and the name of its class.
  static const RunConfig& run_config(const DataParallelTrainer& trainer) { return trainer.options_.run; }
  static const std::string& class_name(const DataParallelTrainer& trainer) { return trainer.trainer_; }
  /// Throws ConfigError if a param_space cannot be one of a trainer.
  static void check(const Value& param_space);

 private:
  DataParallelTrainer prepared(const Job& job, Callback& watch) const;

  TrialLoop& loop_;
  const DataParallelTrainer& trainer_;
  const RunConfig run_;
  const bool decides_;
};

}  // namespace lockstep::tune
