#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "base/clock.h"

namespace lockstep::agent {

/// The agent's event loop: one thread, callbacks only from run(). Watches and timers must not outlive the loop; each
/// may be destroyed at any time, even in its own callback, and then makes no more calls.
class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Makes callbacks until stop(). Exceptions of callbacks leave run().
  void run();
  void stop();
  /// Calls `callback` once, after those that are due now.
  void post(std::function<void()> callback);
  /// Calls `callback` with each of these signals that arrives.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> callback);

  struct Impl;

 private:
  friend class Watch;
  friend class Timer;
  std::unique_ptr<Impl> impl_;
};

/// Watches a descriptor, which is borrowed, becomes non-blocking and must stay open. One Watch per descriptor.
class Watch {
 public:
  Watch() = default;
  Watch(Loop& loop, int fd);
  ~Watch();
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;

  /// Calls `callback` whenever there is something to read or the end is reached, until pause().
  void on_readable(std::function<void()> callback);
  void pause();
  void resume();
  /// Calls `callback` once, when something can be written.
  void once_writable(std::function<void()> callback);

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

/// One deadline at a time.
class Timer {
 public:
  explicit Timer(Loop& loop);
  ~Timer();
  Timer(Timer&&) noexcept;
  Timer& operator=(Timer&&) noexcept;

  /// Calls `callback` after `delay`; replaces an earlier call.
  void set(Seconds delay, std::function<void()> callback);
  void cancel();

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::agent
