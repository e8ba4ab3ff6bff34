#include "worker/lease_guard.h"

#include <unistd.h>

#include <csignal>

namespace lockstep::worker {

void LeaseGuard::renew(double until) {
  const std::lock_guard lock(mutex_);
  end_ = Instant{} + ticks(Seconds(until));
  if (stopped_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  changed_.notify_all();
}

void LeaseGuard::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void LeaseGuard::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_ && now() < end_) changed_.wait_until(lock, end_);
  if (stopped_) return;
  ::kill(0, SIGKILL);
}

}  // namespace lockstep::worker
