#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace lockstep::collective {

/// A word in memory that processes share.
using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

/// Sleeps while `word` is `value`, until it is woken or `deadline` has passed; may also return for no reason. False:
/// the deadline has passed.
bool futex_wait(Word& word, std::uint32_t value, Instant deadline);
/// Wakes all that sleep on `word`, in any process.
void futex_wake(Word& word);

/// Tells the processor that this is a loop that waits for memory to change.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep::collective
