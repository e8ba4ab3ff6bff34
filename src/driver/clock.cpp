#include "driver/clock.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>

namespace lockstep::driver {

int poll_timeout(std::optional<Instant> until, Instant now) {
  constexpr double kLongest = 86400;
  if (!until) return -1;
  return static_cast<int>(std::ceil(std::clamp(Seconds(*until - now).count(), 0.0, kLongest) * 1000));
}

void Clock::wait(std::span<pollfd> fds, std::optional<Instant> until) {
  if (::poll(fds.data(), fds.size(), poll_timeout(until, now())) < 0 && errno != EINTR)
    throw EngineError("[driver] poll: " + std::string(strerror(errno)));
}

}  // namespace lockstep::driver
