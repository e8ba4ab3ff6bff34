#pragma once

namespace lockstep::worker {

/// Makes SIGUSR2 write the native stack of the interrupted thread to `fd`, followed by a zero byte. Install it once,
/// before Python's faulthandler registers the same signal and chains to it.
void install_native_stacks(int fd);

}  // namespace lockstep::worker
