#include "worker/native_stacks.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace lockstep::worker {
namespace {

int stacks_fd = -1;

void write_stack(int) {
  const int saved = errno;
  constexpr std::string_view kTitle = "Native stack (interrupted thread):\n";
  std::array<void*, 64> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  if (write(stacks_fd, kTitle.data(), kTitle.size()) > 0) backtrace_symbols_fd(frames.data(), count, stacks_fd);
  // A zero byte marks the end, so the agent need not wait for more.
  if (write(stacks_fd, "", 1) < 0) {
    // There is no reader any more.
  }
  errno = saved;
}

}  // namespace

void install_native_stacks(int fd) {
  stacks_fd = fd;
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);  // load the unwinder now; a signal handler must not do that
  struct sigaction action {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace lockstep::worker
