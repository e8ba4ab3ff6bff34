#pragma once

#include <lockstep/session.h>
#include <sys/types.h>

#include <functional>
#include <mutex>
#include <utility>

#include "sys/descriptor.h"
#include "tune/function_session.h"
#include "tune/trial_loop.h"

namespace lockstep::tune {

/// A process that was forked before there were threads, and forks one for each trial of a function: what a trial does
/// to its process, the next one does not see.
class TrialForks {
 public:
  /// Forks. The thread must outlive this object. Throws EngineError if the system refuses.
  explicit TrialForks(const std::function<Value(Session&)>& function);
  /// Kills the trials that are left.
  ~TrialForks();
  TrialForks(const TrialForks&) = delete;
  TrialForks& operator=(const TrialForks&) = delete;

  /// Runs each trial in a new process. `loop` and this object are borrowed. `waits`: reports wait for a decision.
  TrialLoop::RunTrial trials(TrialLoop& loop, FunctionTrial trial, bool waits);

  /// A process to be: it reads from `stream` what its trial is; `status` tells how it began and how it ended.
  struct Child {
    sys::Descriptor stream, status;
  };
  Child start();

 private:
  pid_t server_ = -1;
  std::mutex mutex_;
  sys::Descriptor requests_;
};

}  // namespace lockstep::tune
