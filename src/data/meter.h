#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::data {

/// What a source has given so far, and the time that took, summed over threads. Any thread may call.
struct Meter {
  std::atomic<std::int64_t> blocks = 0;
  std::atomic<std::int64_t> rows = 0;
  std::atomic<std::int64_t> bytes = 0;
  std::atomic<std::int64_t> nanoseconds = 0;  ///< without that of the sources that it reads
};

/// Adds the time of a scope to a meter. What scopes within it take, on the same thread, is not counted twice.
class Timed {
 public:
  explicit Timed(Meter& meter);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Meter& meter_;
  std::int64_t within_before_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::data
