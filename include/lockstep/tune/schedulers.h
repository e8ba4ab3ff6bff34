#pragma once

#include <lockstep/value.h>
#include <string>
#include <vector>

namespace lockstep::tune {

/// A scheduler, as TuneConfig::scheduler takes it. Each struct below converts to one. `time_attr` is the metric by
/// which trials are compared at the same age.
struct TrialScheduler {
  Value description = {{"kind", "fifo"}};
  std::string time_attr = "training_iteration";
  Value config = Value::object();  ///< with which trials begin; it goes into the param_space
};

inline namespace schedulers {
// NOLINTBEGIN(google-explicit-constructor): a TuneConfig takes each of them as it is

/// Trials run to their end, in the order of their numbers.
struct FIFOScheduler {
  operator TrialScheduler() const { return {}; }
};

/// ASHA: stops the worse trials at 1, 4, 16, ... iterations, without waiting for others. Of those that reach a rung,
/// one in `reduction_factor` goes on.
struct AsyncHyperBandScheduler {
  std::string time_attr = "training_iteration";
  double max_t = 100;       ///< a trial ends when it has reached this
  double grace_period = 1;  ///< no trial is stopped before
  double reduction_factor = 4;
  int brackets = 1;
  bool stop_last_trials = true;  ///< at max_t
  operator TrialScheduler() const;
};
using ASHAScheduler = AsyncHyperBandScheduler;

/// Successive halving in brackets. Trials pause until their bracket decides, so they need checkpoints.
struct HyperBandScheduler {
  std::string time_attr = "training_iteration";
  double max_t = 81;
  double reduction_factor = 3;
  bool stop_last_trials = true;  ///< at max_t
  operator TrialScheduler() const;
};

/// HyperBand with one bracket after the other, for BOHBSearch.
struct HyperBandForBOHB {
  std::string time_attr = "training_iteration";
  double max_t = 81;
  double reduction_factor = 3;
  bool stop_last_trials = true;
  operator TrialScheduler() const;
};

/// Stops a trial whose best result is worse than the median of the others' averages at that time.
struct MedianStoppingRule {
  std::string time_attr = "time_total_s";
  double grace_period = 60;      ///< no trial is stopped before
  int min_samples_required = 3;  ///< trials to compare with
  double min_time_slice = 0;
  bool hard_stop = true;  ///< false: pauses
  operator TrialScheduler() const;
};

/// Every `perturbation_interval`, a bad trial goes on from the checkpoint of a good one, with its configuration
/// changed. Trials need checkpoints.
struct PopulationBasedTraining {
  std::string time_attr = "time_total_s";
  double perturbation_interval = 60;
  double burn_in_period = 0;
  Value hyperparam_mutations = Value::object();  ///< a domain, or a list of values in their order, for each parameter
  double quantile_fraction = 0.25;               ///< how many trials count as bad, and as good
  double resample_probability = 0.25;            ///< otherwise the donor's value is multiplied by one of the next
  std::vector<double> perturbation_factors{1.2, 0.8};
  bool synch = false;
  operator TrialScheduler() const;
};

/// Repeats the changes of one trial of an earlier population: `policy_file` is the pbt_policy_<id>.txt that it left in
/// its experiment's directory. For one trial without a param_space. Converting throws ConfigError if there is no such
/// file.
struct PopulationBasedTrainingReplay {
  std::string policy_file;
  operator TrialScheduler() const;
};

// NOLINTEND(google-explicit-constructor)
}  // namespace schedulers
}  // namespace lockstep::tune
