#include "driver/run_control.h"

#include <sys/eventfd.h>

#include "sys/sockets.h"

namespace lockstep::driver {

RunControl::RunControl() : event_(sys::event_descriptor()) {}

void RunControl::request_stop(bool checkpoint) {
  int before = none;
  const int wish = checkpoint ? with_checkpoint : at_once;
  while (before < wish && !wish_.compare_exchange_weak(before, wish)) {
  }
  ::eventfd_write(event_.get(), 1);
}

std::optional<bool> RunControl::take() {
  eventfd_t count = 0;
  ::eventfd_read(event_.get(), &count);
  const int wish = wish_.exchange(none);
  return wish == none ? std::nullopt : std::optional(wish == with_checkpoint);
}

}  // namespace lockstep::driver
