#include "worker/report_gate.h"

#include <algorithm>

namespace lockstep::worker {
namespace {

/// A rank waits at most this long for rank 0 to make the same report. Rank 0 may be busy, or wait for this rank
/// elsewhere.
constexpr auto kLongestLag = 5s;

}  // namespace

void ReportGate::enter() {
  const std::lock_guard lock(mutex_);
  current_ = made_ + 1;
}

void ReportGate::leave() {
  const std::lock_guard lock(mutex_);
  current_.reset();
}

void ReportGate::accept(const std::function<void()>& add) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !settled_ || open_; });
  add();
  ++made_;
}

bool ReportGate::wait() {
  std::unique_lock lock(mutex_);
  const auto may_pass = [&](bool answered) {
    const bool waits = holds_ || (passing_ && made_ > *passing_) || (answered && gone_on_ < made_);
    return open_ || end_after_ || !waits;
  };
  if (answered_ && !leads_ && gone_on_ >= made_ - 1)
    changed_.wait_for(lock, kLongestLag, [&] { return may_pass(true); });
  changed_.wait(lock, [&] { return may_pass(answered_ && leads_); });
  current_.reset();
  return has_ended() && (!asked_ || restarts_);
}

int ReportGate::hold() {
  const std::lock_guard lock(mutex_);
  holds_ = true;
  return current_.value_or(made_ + 1);
}

bool ReportGate::holds() const {
  const std::lock_guard lock(mutex_);
  return holds_;
}

void ReportGate::end_after(int reports, bool restarts) {
  const std::lock_guard lock(mutex_);
  end_after_ = reports;
  restarts_ = restarts;
  changed_.notify_all();
}

int ReportGate::pause() {
  const std::lock_guard lock(mutex_);
  passing_ = 0;
  paused_ = true;
  return current_.value_or(made_ + 1);
}

void ReportGate::let_pass(int reports) {
  const std::lock_guard lock(mutex_);
  passing_ = reports < 0 ? std::nullopt : std::optional(reports);
  paused_ = passing_.has_value();
  changed_.notify_all();
}

void ReportGate::go_on(int reports) {
  const std::lock_guard lock(mutex_);
  gone_on_ = std::max(gone_on_, reports);
  changed_.notify_all();
}

void ReportGate::settle() {
  const std::lock_guard lock(mutex_);
  settled_ = true;
}

void ReportGate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

bool ReportGate::is_over() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  return has_ended() && !restarts_;
}

}  // namespace lockstep::worker
