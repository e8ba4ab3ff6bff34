#pragma once

#include <lockstep/error.h>
#include <lockstep/session.h>

#include <functional>
#include <optional>
#include <string>

#include "tune/trial_loop.h"

namespace lockstep::tune {

/// What all trials of a function have in common.
struct FunctionTrial {
  std::string experiment;
  std::string trainable;
  std::string metric;  ///< the name of a number that the function returns; empty: there is none
};

/// The way from a trial to the loop.
class TrialLink {
 public:
  virtual ~TrialLink() = default;
  /// See TrialLoop::report().
  virtual bool report(const Value& result, const std::string& checkpoint, bool last) = 0;
  /// A signal or an error ends the experiment; it can be continued.
  virtual bool interrupted() = 0;
  /// The trial's next report is the last, or the last one was.
  virtual bool ending() = 0;
};

/// Runs a trial in the calling thread. What the function throws is the outcome's error.
TrialLoop::Outcome run_function(const std::function<Value(Session&)>& function, TrialLink& link, const Job& job,
                                const FunctionTrial& trial);

/// How an attempt ended, for the trial's run.json.
struct TrialEnd {
  std::string state;
  const Failure* failure = nullptr;
  std::int64_t reports = 0;
  Value last{};                   ///< the last report
  std::optional<int> next_seq{};  ///< of checkpoints; nothing: there was none
};
void close_trial_directory(const Job& job, const FunctionTrial& trial, const TrialEnd& end);

}  // namespace lockstep::tune
