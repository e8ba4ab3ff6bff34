#pragma once

#include <poll.h>

#include <optional>
#include <span>

#include "base/clock.h"

namespace lockstep::driver {

/// The timeout of poll() until then, in milliseconds: -1 if there is no limit, and at most a day.
int poll_timeout(std::optional<Instant> until, Instant now);

/// The clock of the driver's loop. Tests use a fake one.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const { return lockstep::now(); }
  virtual WallTime wall_now() const { return lockstep::wall_now(); }
  /// Waits until a descriptor is readable or the time is `until`. May return early. Throws EngineError.
  virtual void wait(std::span<pollfd> fds, std::optional<Instant> until);
};

}  // namespace lockstep::driver
