#pragma once

#include "driver/run_control.h"

namespace lockstep::train {

/// A run that must be over before the process ends; stop_open_runs() ends it. Any thread may make it. A fork of the
/// process begins with none.
class OpenRun {
 public:
  /// `control` must outlive it. Throws EngineError after stop_open_runs().
  explicit OpenRun(driver::RunControl& control);
  ~OpenRun();
  OpenRun(const OpenRun&) = delete;
  OpenRun& operator=(const OpenRun&) = delete;

  /// Says that the calling thread runs it from now on.
  void set_thread();

 private:
  driver::RunControl& control_;
};

/// A thread that must be awake again before the process ends, because it waits for an open run or prepares one.
class OpenWait {
 public:
  OpenWait();
  ~OpenWait();
  OpenWait(const OpenWait&) = delete;
  OpenWait& operator=(const OpenWait&) = delete;
};

/// Stops all open runs, with their checkpoints, and waits until they are over and nobody waits for them. Does not wait
/// for runs of the calling thread: one of their callbacks called it. No run can be opened any more.
void stop_open_runs();

}  // namespace lockstep::train
