#include "sys/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <tuple>
#include <utility>

#include "sys/descriptor.h"
#include "sys/sockets.h"

namespace lockstep::sys {

/// A pipe. A signal handler may write to it at any time, so it is never closed; the next watch reuses it.
struct SignalWatch::Slot {
  Descriptor read, write;
  int owner = 0;  ///< the process that made it; a fork must not write to its parent
  std::atomic<bool> used = false;
  std::atomic<Then> then = Then::nothing;
  Slot* next = nullptr;

  bool is_live() const { return used && owner == ::getpid(); }
  void put(int signal) const {
    const auto byte = static_cast<unsigned char>(signal);
    if (::write(write.get(), &byte, 1) < 0) {
      // If the pipe is full, enough signals are waiting already.
    }
  }
  int take() const {
    unsigned char byte = 0;
    return ::read(read.get(), &byte, 1) == 1 ? byte : 0;
  }
};

/// What the watches of this process share. The handler reads it without the mutex.
struct SignalWatch::All {
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1};

  static inline std::mutex mutex;
  static inline std::atomic<Slot*> slots = nullptr;
  static inline std::array<struct sigaction, kSignals.size()> before;
  static inline std::atomic<int> pending = 0;  ///< the last signal since the first watch was made
  static inline std::atomic<int> owed = 0;     ///< raised when no watch is left

  static bool any_live() {
    for (const Slot* slot = slots; slot != nullptr; slot = slot->next)
      if (slot->is_live()) return true;
    return false;
  }

  static void handle(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    auto then = Then::later;
    bool is_watched = false;
    for (const Slot* slot = slots; slot != nullptr; slot = slot->next) {
      if (!slot->is_live()) continue;
      is_watched = true;
      slot->put(signal);
      then = std::min(then, slot->then.load());
    }
    const auto& old = before[signal == SIGINT ? 0 : signal == SIGTERM ? 1 : 2];
    if (!is_watched) {
      // A fork without a watch of its own, or the last watch is just being destroyed. The signal is delivered again
      // when this returns.
      sigaction(signal, &old, nullptr);
      std::raise(signal);
      errno = saved;
      return;
    }
    pending = signal;
    const bool has_handler = (old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL;
    if (then == Then::later || (then == Then::at_once && !has_handler)) owed = signal;
    errno = saved;
    if (then != Then::at_once || !has_handler) return;
    if ((old.sa_flags & SA_SIGINFO) != 0)
      old.sa_sigaction(signal, info, context);
    else
      old.sa_handler(signal);
  }

  static bool is_ours(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle;
  }

  static void install() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction now {};
      sigaction(kSignals[i], nullptr, &now);
      if (is_ours(now) || ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN)) continue;
      if (kSignals[i] == SIGUSR1 && ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL)) continue;
      before[i] = now;
      struct sigaction ours {};
      ours.sa_sigaction = handle;
      ours.sa_flags = SA_SIGINFO;
      sigemptyset(&ours.sa_mask);
      sigaction(kSignals[i], &ours, nullptr);
    }
  }

  static void restore() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction now {};
      sigaction(kSignals[i], nullptr, &now);
      if (is_ours(now)) sigaction(kSignals[i], &before[i], nullptr);
    }
  }

  /// A free slot of this process, or a new one.
  static Slot* slot() {
    for (Slot* each = slots; each != nullptr; each = each->next)
      if (!each->used && each->owner == ::getpid()) return each;
    auto* made = new Slot;
    std::tie(made->read, made->write) = pipe_pair();
    set_nonblocking(made->read.get(), true);
    set_nonblocking(made->write.get(), true);
    made->owner = ::getpid();
    made->next = slots;
    slots = made;
    return made;
  }
};

SignalWatch::SignalWatch(Then then) {
  const std::lock_guard lock(All::mutex);
  if (!All::any_live()) All::pending = All::owed = 0;
  slot_ = All::slot();
  while (slot_->take() != 0) {
  }
  slot_->then = then;
  slot_->used = true;
  All::install();
  if (const int signal = All::pending) slot_->put(signal);
}

SignalWatch::~SignalWatch() {
  int owed = 0;
  {
    const std::lock_guard lock(All::mutex);
    slot_->used = false;
    if (All::any_live()) return;
    All::restore();
    All::pending = 0;
    owed = All::owed.exchange(0);
  }
  if (owed != 0) std::raise(owed);
}

int SignalWatch::fd() const { return slot_->read.get(); }

int SignalWatch::take() { return slot_->take(); }

void SignalWatch::forgive(int signal) { All::owed.compare_exchange_strong(signal, 0); }

void SignalWatch::put(int signal) { slot_->put(signal); }

}  // namespace lockstep::sys
