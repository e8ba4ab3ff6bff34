#pragma once

namespace lockstep::worker {

/// On SIGUSR2 writes the native stack of the interrupted thread to `fd`, then a zero byte. Install
/// once, before Python's faulthandler registers the same signal and chains to it.
void install_native_stacks(int fd);

}  // namespace lockstep::worker
