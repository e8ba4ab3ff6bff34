#pragma once

#include <cstdint>
#include <filesystem>
#include <lockstep/callback.h>
#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <string>

namespace lockstep::tune {

/// A trial of an experiment.
struct TrialInfo {
  std::int64_t number = 0;     ///< from 0, in the order in which they were made
  std::string trial_id;        ///< "a1b2c_00003"
  std::string name;            ///< of its directory
  std::filesystem::path path;  ///< its directory, which need not exist
  Value config;
};

/// Hooks into an experiment, for RunConfig::callbacks of a Tuner. Called one at a time, in the threads of trials; every
/// hook does nothing by default. One that throws ends the experiment, which can be restored.
class Callback : public lockstep::Callback {
 public:
  /// Also when the trial goes on after a pause or a failure.
  virtual void on_trial_start(const TrialInfo&) {}
  virtual void on_trial_result(const TrialInfo&, const Value& /*result*/) {}
  /// A checkpoint was committed.
  virtual void on_trial_save(const TrialInfo&, const Checkpoint&) {}
  /// It ended by itself, or was stopped.
  virtual void on_trial_complete(const TrialInfo&) {}
  /// It failed for good.
  virtual void on_trial_error(const TrialInfo&, const std::string& /*error*/) {}
  /// No trial runs any more. `path`: the experiment's directory.
  virtual void on_experiment_end(const std::filesystem::path& /*path*/) {}
};

}  // namespace lockstep::tune
