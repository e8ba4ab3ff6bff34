#pragma once

#include <chrono>
#include <cmath>

namespace lockstep {

using namespace std::chrono_literals;

using Seconds = std::chrono::duration<double>;
/// For intervals and deadlines.
using Instant = std::chrono::steady_clock::time_point;
/// For times shown to people.
using WallTime = std::chrono::system_clock::time_point;

inline Instant now() { return std::chrono::steady_clock::now(); }
inline WallTime wall_now() { return std::chrono::system_clock::now(); }

/// A duration in the clock's ticks, which can be added to an Instant. Longer ones become a hundred years: the clock
/// overflows after 292. NaN becomes the shortest.
inline std::chrono::steady_clock::duration ticks(Seconds seconds) {
  constexpr double kLongest = 100 * 365.25 * 86400;
  const Seconds clamped(std::fmin(std::fmax(seconds.count(), -kLongest), kLongest));
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(clamped);
}

/// Seconds since 1970.
inline double unix_seconds(WallTime time) { return Seconds(time.time_since_epoch()).count(); }

}  // namespace lockstep
