#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/searcher.h"

namespace lockstep::tune {

/// What a trial does after a report.
struct Decision {
  enum class Kind { go_on, stop, pause };
  Kind kind = Kind::go_on;
  std::string why;  ///< one short sentence for the log and the database; empty for go_on
};

/// What a paused trial does when it goes on, if not with its own state (population based training).
struct Exploit {
  TrialNumber donor = 0;  ///< continue from the checkpoint of this trial; may be the trial itself
  Value config;           ///< with this configuration
};

/// Decides which trials go on. Like a searcher, it is a function of its seed and of the calls so far, in their order;
/// those of choose() count too. For one thread at a time. Values are minimised; NaN is worse than every number. `time`
/// is the report's value of the time attribute (training_iteration).
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// Whether on_result can return anything but go_on: reports then wait for the decision.
  virtual bool may_stop() const { return true; }
  /// The configuration that a new trial begins with: `config`, and what the scheduler adds to it. Called before
  /// on_added, which gets the result.
  virtual Value complete_config(TrialNumber /*trial*/, Value config) const { return config; }
  /// Trials are added in the order of their numbers. For a known trial: its configuration was replaced by the caller.
  virtual void on_added(TrialNumber /*trial*/, const Value& /*config*/) {}
  /// `has_checkpoint`: the trial has a checkpoint that it, or another trial, can go on from.
  virtual Decision on_result(TrialNumber trial, double time, double value, bool has_checkpoint) = 0;
  /// A checkpoint of a running trial was committed after its report: trials of trainers write them meanwhile.
  virtual void on_checkpoint(TrialNumber /*trial*/) {}
  /// The trial ended for good: by itself, because it was stopped, or because it failed and will not be tried again.
  virtual void on_ended(TrialNumber /*trial*/, bool /*failed*/) {}
  /// Whether trials will be added after those that are known. Said before each choose(), because trials are made only
  /// when they can start.
  virtual void more_to_come(bool /*more*/) {}
  /// Which of the trials that could run now is started next; the one returned is started. `fresh`: new ones, and those
  /// that failed and are tried again; empty only if the searcher has no further one now. `paused`: those whose process
  /// has ended after the decision to pause. Both in the order of their numbers. Nothing: none of them may start yet.
  /// If no trial runs, a trial is returned, or take_dropped() has some; so experiments never come to a standstill.
  virtual std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                            const std::vector<TrialNumber>& paused);
  /// Trials that were told to pause and will never go on; each is returned once, and ends as stopped. To be asked after
  /// on_result, on_ended and choose. The process of such a trial may still be ending.
  virtual std::vector<TrialNumber> take_dropped() { return {}; }
  /// Called once before a paused trial goes on.
  virtual std::optional<Exploit> take_exploit(TrialNumber /*trial*/) { return std::nullopt; }
  /// Trials whose checkpoints must stay because a paused trial will go on from them.
  virtual std::vector<TrialNumber> donors() const { return {}; }
  /// The changes of configurations so far, oldest first: {"trial", "donor", "time", "donor_time", "old_config" (the
  /// donor's), "new_config"}.
  virtual Value replay_log() const { return Value::array(); }
};

/// Makes a scheduler from its description {"kind": "asha", ...options}. Options are named and default as below; null is
/// the default. Throws ConfigError if an option is unknown or wrong.
///
///     fifo
///     asha            max_t 100, grace_period 1, reduction_factor 4, brackets 1, stop_last_trials true
///     hyperband       max_t 81, reduction_factor 3, stop_last_trials true
///     hyperband_bohb  the same; a bracket begins when the one before has ended
///     median          grace_period 60, min_samples_required 3, min_time_slice 0, hard_stop true
///     pbt             perturbation_interval 60, burn_in_period 0, hyperparam_mutations (required), quantile_fraction
///                     0.25, resample_probability 0.25, perturbation_factors [1.2, 0.8], synch false
///     pbt_replay      policy: [[time, config], ...], by time
///
/// `hyperparam_mutations` has, at the place of each parameter, a domain (see Space), a list of values in their order,
/// or {"$samples": [...]}: values drawn before, for a parameter that is scaled as one of a continuous domain.
std::unique_ptr<Scheduler> make_scheduler(const Value& description, std::uint64_t seed);

/// The policy that made `trial` what it is, for pbt_replay: {"config": the first configuration, "policy": [[time,
/// config], ...]}, from a replay log. It follows donors back to the trial that was there first. Null if the trial has
/// never changed.
Value replay_policy(const Value& replay_log, TrialNumber trial);

}  // namespace lockstep::tune
