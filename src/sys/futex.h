#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace lockstep::sys {

/// A word in memory that processes share.
using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

/// Sleeps while `word` is `value`, until it is woken or `deadline` has passed; spurious returns are possible. Returns
/// false if the deadline has passed.
bool futex_wait(Word& word, std::uint32_t value, Instant deadline);
/// Wakes all threads that sleep on `word`, in any process.
void futex_wake(Word& word);

/// Tells the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep::sys
