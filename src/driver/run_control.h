#pragma once

#include <atomic>
#include <optional>

#include "sys/descriptor.h"

namespace lockstep::driver {

/// What other threads may ask of a run. Any thread may call it, before, during and after the run.
class RunControl {
 public:
  /// Throws EngineError if the process has no descriptor left.
  RunControl();

  /// Asks the run to end. `checkpoint`: reported checkpoints are committed first. A second request without it ends that
  /// wait.
  void request_stop(bool checkpoint);

  /// Readable when there is something to take.
  int fd() const { return event_.get(); }
  /// The request since the last call, if there was one: whether to keep what has been reported.
  std::optional<bool> take();

 private:
  enum Wish { none, with_checkpoint, at_once };

  sys::Descriptor event_;
  std::atomic<int> wish_ = none;
};

}  // namespace lockstep::driver
