#include "driver/running_hook.h"

#include <atomic>
#include <utility>

namespace lockstep::driver {
namespace {

thread_local RunningHook* innermost_hook = nullptr;

}  // namespace

RunningHook::RunningHook(const Callback& callback) : callback_(callback), outer_(std::exchange(innermost_hook, this)) {}

RunningHook::~RunningHook() { innermost_hook = outer_; }

bool RunningHook::request_stop(const Callback& callback) {
  for (RunningHook* hook = innermost_hook; hook != nullptr; hook = hook->outer_) {
    if (&hook->callback_ != &callback) continue;
    hook->stop_requested_ = true;
    return true;
  }
  return false;
}

}  // namespace lockstep::driver

namespace lockstep {

void Callback::request_stop() {
  if (!driver::RunningHook::request_stop(*this)) std::atomic_ref<bool>(stop_requested_).store(true);
}

bool Callback::take_stop_request() { return std::atomic_ref<bool>(stop_requested_).exchange(false); }

}  // namespace lockstep
