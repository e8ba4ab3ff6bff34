#include <lockstep/tune/schedulers.h>
#include <lockstep/tune/search.h>
#include <lockstep/tune/space.h>
#include <lockstep/tune/stoppers.h>

#include "tune/policy_files.h"
#include "tune/space.h"

namespace lockstep::tune {
namespace {

/// A domain; its options are checked by the parser of spaces.
Value domain_of(const char* kind, const Value& options) {
  Value described = {{"kind", kind}};
  described.update(options);
  Value domain = {{"$domain", std::move(described)}};
  Space::parse({{kind, domain}});
  return domain;
}

Value bounds(const Value& lower, const Value& upper) { return {{"lower", lower}, {"upper", upper}}; }
Value bounds(const Value& lower, const Value& upper, const Value& q) {
  return {{"lower", lower}, {"upper", upper}, {"q", q}};
}

/// {"kind": ..., the options that are given}.
struct Described {
  explicit Described(const char* kind) : value({{"kind", kind}}) {}
  template <class Option>
  Described& with(const char* name, const std::optional<Option>& option) {
    if (option) value[name] = *option;
    return *this;
  }
  Described& with(const char* name, const Value& option) {
    value[name] = option;
    return *this;
  }
  Value value;
};

TrialScheduler successive_halving(const char* kind, const std::string& time_attr, double max_t, double factor,
                                  bool stop_last) {
  return {Described(kind)
              .with("max_t", Value(max_t))
              .with("reduction_factor", Value(factor))
              .with("stop_last_trials", Value(stop_last))
              .value,
          time_attr};
}

}  // namespace

// ---------------------------------------------------------------- domains

Value grid_search(const std::vector<Value>& values) { return domain_of("grid_search", {{"values", values}}); }
Value choice(const std::vector<Value>& values) {
  // A list of values with a grid_search in it is refused where the whole space is parsed, which knows the parameter.
  return domain_of("choice", {{"values", values}});
}
Value uniform(double lower, double upper) { return domain_of("uniform", bounds(lower, upper)); }
Value quniform(double lower, double upper, double q) { return domain_of("quniform", bounds(lower, upper, q)); }
Value loguniform(double lower, double upper) { return domain_of("loguniform", bounds(lower, upper)); }
Value qloguniform(double lower, double upper, double q) { return domain_of("qloguniform", bounds(lower, upper, q)); }
Value randint(std::int64_t lower, std::int64_t upper) { return domain_of("randint", bounds(lower, upper)); }
Value qrandint(std::int64_t lower, std::int64_t upper, std::int64_t q) {
  return domain_of("qrandint", bounds(lower, upper, q));
}
Value lograndint(std::int64_t lower, std::int64_t upper) { return domain_of("lograndint", bounds(lower, upper)); }
Value qlograndint(std::int64_t lower, std::int64_t upper, std::int64_t q) {
  return domain_of("qlograndint", bounds(lower, upper, q));
}
Value randn(double mean, double sd) { return domain_of("randn", {{"mean", mean}, {"sd", sd}}); }
Value qrandn(double mean, double sd, double q) { return domain_of("qrandn", {{"mean", mean}, {"sd", sd}, {"q", q}}); }

// ---------------------------------------------------------------- searchers

RandomSearch::operator SearchAlgorithm() const { return {Described("random").value, points_to_evaluate}; }
GridSearch::operator SearchAlgorithm() const {
  return {Described("grid").with("steps", steps).value, points_to_evaluate};
}
SobolSearch::operator SearchAlgorithm() const { return {Described("sobol").value, points_to_evaluate}; }
TPESearch::operator SearchAlgorithm() const {
  return {Described("tpe")
              .with("n_startup", n_startup)
              .with("n_candidates", n_candidates)
              .with("prior_weight", prior_weight)
              .value,
          points_to_evaluate};
}
BOHBSearch::operator SearchAlgorithm() const {
  return {Described("bohb").with("n_startup", n_startup).with("n_candidates", n_candidates).with("eta", eta).value,
          points_to_evaluate};
}
CMAESSearch::operator SearchAlgorithm() const {
  return {Described("cmaes").with("population", population).value, points_to_evaluate};
}
GPSearch::operator SearchAlgorithm() const {
  return {Described("gp").with("n_startup", n_startup).with("history", history).value, points_to_evaluate};
}
NSGA2Search::operator SearchAlgorithm() const {
  return {Described("nsga2").with("population", population).with("crossover", crossover).value, points_to_evaluate};
}
ConcurrencyLimiter::operator SearchAlgorithm() const {
  return {Described("limit")
              .with("max_concurrent", Value(max_concurrent))
              .with("batch", Value(batch))
              .with("searcher", searcher.description)
              .value,
          searcher.points_to_evaluate, searcher.own};
}
Repeater::operator SearchAlgorithm() const {
  return {Described("repeat").with("repeat", Value(repeat)).with("searcher", searcher.description).value,
          searcher.points_to_evaluate, searcher.own};
}

// ---------------------------------------------------------------- schedulers

AsyncHyperBandScheduler::operator TrialScheduler() const {
  return {Described("asha")
              .with("max_t", Value(max_t))
              .with("grace_period", Value(grace_period))
              .with("reduction_factor", Value(reduction_factor))
              .with("brackets", Value(brackets))
              .with("stop_last_trials", Value(stop_last_trials))
              .value,
          time_attr};
}
HyperBandScheduler::operator TrialScheduler() const {
  return successive_halving("hyperband", time_attr, max_t, reduction_factor, stop_last_trials);
}
HyperBandForBOHB::operator TrialScheduler() const {
  return successive_halving("hyperband_bohb", time_attr, max_t, reduction_factor, stop_last_trials);
}
MedianStoppingRule::operator TrialScheduler() const {
  return {Described("median")
              .with("grace_period", Value(grace_period))
              .with("min_samples_required", Value(min_samples_required))
              .with("min_time_slice", Value(min_time_slice))
              .with("hard_stop", Value(hard_stop))
              .value,
          time_attr};
}
PopulationBasedTraining::operator TrialScheduler() const {
  return {Described("pbt")
              .with("perturbation_interval", Value(perturbation_interval))
              .with("burn_in_period", Value(burn_in_period))
              .with("hyperparam_mutations", hyperparam_mutations)
              .with("quantile_fraction", Value(quantile_fraction))
              .with("resample_probability", Value(resample_probability))
              .with("perturbation_factors", Value(perturbation_factors))
              .with("synch", Value(synch))
              .value,
          time_attr};
}

PopulationBasedTrainingReplay::operator TrialScheduler() const {
  const Policy policy = read_policy(policy_file);
  return {Described("pbt_replay").with("policy", policy.changes).value, "training_iteration", policy.config};
}

// ---------------------------------------------------------------- stoppers

MaximumIterationStopper::operator Stop() const {
  return Described("max_iteration").with("max_iter", Value(max_iter)).value;
}
TrialPlateauStopper::operator Stop() const {
  Described made = Described("trial_plateau")
                       .with("metric", Value(metric))
                       .with("std", Value(std))
                       .with("num_results", Value(num_results))
                       .with("grace_period", Value(grace_period))
                       .with("metric_threshold", metric_threshold);
  return mode.empty() ? made.value : made.with("mode", Value(mode)).value;
}
ExperimentPlateauStopper::operator Stop() const {
  return Described("experiment_plateau")
      .with("metric", Value(metric))
      .with("std", Value(std))
      .with("top", Value(top))
      .with("mode", Value(mode))
      .with("patience", Value(patience))
      .value;
}
TimeoutStopper::operator Stop() const { return Described("timeout").with("timeout", Value(timeout.count())).value; }
CombinedStopper::operator Stop() const {
  Stop all;
  for (const Stop& each : stoppers) {
    all.descriptions.insert(all.descriptions.end(), each.descriptions.begin(), each.descriptions.end());
    all.functions.insert(all.functions.end(), each.functions.begin(), each.functions.end());
  }
  return all;
}

}  // namespace lockstep::tune
