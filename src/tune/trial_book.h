#pragma once

#include <set>
#include <vector>

#include "tune/experiment.h"
#include "tune/experiment_store.h"

namespace lockstep::tune {

/// The states of an experiment's trials: a function of its events. Small, because it holds every trial.
class TrialBook {
 public:
  struct Entry {
    TrialState state = TrialState::pending;
    bool stopping = false;  ///< was told to stop
    bool pausing = false;   ///< was told to pause
    bool dropped = false;   ///< ends for good instead of pausing
    bool has_checkpoint = false;
    int failures = 0;
    int attempts = 0;
    std::int64_t iterations = 0;
    std::int64_t checkpoint_iteration = 0;
  };

  void apply(const Event& event);

  std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }
  /// Throws ConfigError if there is no such trial.
  const Entry& at(TrialNumber trial) const;
  std::int64_t count(TrialState state) const { return counts_[static_cast<int>(state)]; }
  /// Trials that can start: new ones and those that are tried again; and paused ones.
  const std::set<TrialNumber>& fresh() const { return fresh_; }
  const std::set<TrialNumber>& paused() const { return paused_; }
  /// The searcher has no further point, or none until it is told something.
  bool exhausted() const { return exhausted_; }
  bool waits() const { return waits_; }
  std::vector<TrialNumber> in_state(TrialState state) const;

 private:
  void enter(TrialNumber trial, TrialState state);

  std::vector<Entry> entries_;
  std::int64_t counts_[5] = {};
  std::set<TrialNumber> fresh_;
  std::set<TrialNumber> paused_;
  bool exhausted_ = false;
  bool waits_ = false;
};

const char* word_of(TrialState state);
TrialState trial_state_of(std::string_view word);

}  // namespace lockstep::tune
