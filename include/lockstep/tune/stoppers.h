#pragma once

#include <chrono>
#include <functional>
#include <lockstep/value.h>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::tune {

/// What ends trials or the experiment by what is reported, as TuneConfig::stop takes it: one of the stoppers below, a
/// function of the trial's id and its result that says whether the trial ends, or a dict of metrics and the values at
/// which a trial ends. Functions are called one at a time. Tuner::restore() must be given them again.
struct Stop {
  using Function = std::function<bool(const std::string& trial_id, const Value& result)>;

  Stop() = default;
  // NOLINTBEGIN(google-explicit-constructor): a TuneConfig takes each of them as it is
  Stop(Value description) { descriptions.push_back(std::move(description)); }
  template <class Callable>
  requires std::is_invocable_r_v<bool, const Callable&, const std::string&, const Value&> Stop(Callable function)
      : functions{std::move(function)} {}
  // NOLINTEND(google-explicit-constructor)

  std::vector<Value> descriptions{};
  std::vector<Function> functions{};
};

inline namespace stoppers {
// NOLINTBEGIN(google-explicit-constructor): a TuneConfig takes each of them as it is

/// Ends a trial after `max_iter` results.
struct MaximumIterationStopper {
  int max_iter = 1;
  operator Stop() const;
};

/// Ends a trial when the last `num_results` values of the metric deviate by at most `std`, and are on the good side of
/// `metric_threshold` if there is one (`mode` says which side).
struct TrialPlateauStopper {
  std::string metric;
  double std = 0.01;
  int num_results = 4;
  int grace_period = 4;  ///< results before which no trial ends
  std::optional<double> metric_threshold{};
  std::string mode{};
  operator Stop() const;
};

/// Ends the experiment when the `top` best values deviate by at most `std`, for more than `patience` results.
struct ExperimentPlateauStopper {
  std::string metric;
  double std = 0.001;
  int top = 10;
  std::string mode = "min";
  int patience = 0;
  operator Stop() const;
};

/// Ends the experiment after this time.
struct TimeoutStopper {
  std::chrono::duration<double> timeout{};
  operator Stop() const;
};

/// Ends a trial or the experiment when one of them does.
struct CombinedStopper {
  std::vector<Stop> stoppers;
  operator Stop() const;
};

// NOLINTEND(google-explicit-constructor)
}  // namespace stoppers
}  // namespace lockstep::tune
