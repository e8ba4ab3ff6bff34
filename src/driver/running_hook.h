#pragma once

#include <lockstep/callback.h>

namespace lockstep::driver {

/// A hook of a callback that runs in this thread now. It takes the stop requests that the hook makes, because one
/// callback may serve several runs at once, and a hook may run another one.
class RunningHook {
 public:
  explicit RunningHook(const Callback& callback);
  ~RunningHook();
  RunningHook(const RunningHook&) = delete;
  RunningHook& operator=(const RunningHook&) = delete;

  bool stop_requested() const { return stop_requested_; }
  /// Returns false if no hook of this callback runs in this thread.
  static bool request_stop(const Callback& callback);

 private:
  const Callback& callback_;
  RunningHook* outer_;
  bool stop_requested_ = false;
};

}  // namespace lockstep::driver
