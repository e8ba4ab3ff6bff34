#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace lockstep::worker {

/// Kills this process and its group when the lease of its node is over, even if the agent is stopped or frozen: its
/// rank may run on another node then. Any thread may call it.
class LeaseGuard {
 public:
  LeaseGuard() = default;
  ~LeaseGuard() { stop(); }
  LeaseGuard(const LeaseGuard&) = delete;
  LeaseGuard& operator=(const LeaseGuard&) = delete;

  /// The lease ends at this time of the machine's monotonic clock, in seconds. The first call starts the guard.
  void renew(double until);
  /// The process may live on without a lease.
  void stop();

 private:
  void watch();

  std::mutex mutex_;  // guards those below
  std::condition_variable changed_;
  Instant end_{};
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::worker
