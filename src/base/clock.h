#pragma once

#include <chrono>

namespace lockstep {

using namespace std::chrono_literals;

using Seconds = std::chrono::duration<double>;
/// For intervals and deadlines.
using Instant = std::chrono::steady_clock::time_point;
/// For what people read.
using WallTime = std::chrono::system_clock::time_point;

inline Instant now() { return std::chrono::steady_clock::now(); }
inline WallTime wall_now() { return std::chrono::system_clock::now(); }

/// A duration in the clock's own ticks, so that it can be added to an Instant.
inline std::chrono::steady_clock::duration ticks(Seconds seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds);
}

/// Seconds since 1970.
inline double unix_seconds(WallTime time) { return Seconds(time.time_since_epoch()).count(); }

}  // namespace lockstep
