#include "sys/futex.h"

#include <linux/futex.h>
#include <lockstep/error.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace lockstep::sys {

bool futex_wait(Word& word, std::uint32_t value, Instant deadline) {
  // The clock of FUTEX_WAIT_BITSET is CLOCK_MONOTONIC, as is steady_clock.
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  const timespec until{.tv_sec = static_cast<time_t>(since / 1'000'000'000),
                       .tv_nsec = static_cast<long>(since % 1'000'000'000)};
  if (::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, value, &until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0) return true;
  if (errno == ETIMEDOUT) return false;
  if (errno == EAGAIN || errno == EINTR) return true;
  throw InternalError(std::string("[sys] futex wait: ") + std::strerror(errno));
}

void futex_wake(Word& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace lockstep::sys
