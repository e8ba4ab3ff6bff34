#pragma once

#include <lockstep/value.h>

#include <memory>

#include "tune/searcher.h"

namespace lockstep::tune {

/// Ends trials, or all of them, by what they report. It knows no clock: the caller says how much time has passed. For
/// one thread at a time.
class Stopper {
 public:
  virtual ~Stopper() = default;
  /// Whether the trial ends after this report. Called for every report.
  virtual bool on_result(TrialNumber trial, const Value& result) = 0;
  /// Whether the experiment ends: no trial goes on and none is started. `elapsed`: seconds since its first start.
  virtual bool stop_all(double /*elapsed*/) { return false; }
};

/// Makes a stopper. Names of metrics may be nested keys joined by "/". A description without a text as "kind" is a dict
/// of thresholds: a trial ends when one of these metrics is at least its value; an empty one never stops. Kinds:
///
///     max_iteration       max_iter (required): reports of a trial
///     trial_plateau       metric (required), std 0.01, num_results 4, grace_period 4, metric_threshold and mode ("min"
///                         or "max", no defaults): the last num_results values of a trial deviate by at most std; with
///                         a threshold, only if the newest value is on its good side
///     experiment_plateau  metric (required), std 0.001, top 10, mode "min", patience 0: the best `top` values of all
///                         trials deviate by at most std, for more than `patience` reports; ends the experiment
///     timeout             timeout (required): seconds; ends the experiment
///     combined            stoppers: a list of descriptions; ends when one of them does
///
/// Throws ConfigError if an option is unknown or wrong.
std::unique_ptr<Stopper> make_stopper(const Value& description);

}  // namespace lockstep::tune
