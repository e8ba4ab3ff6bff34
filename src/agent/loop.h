#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "base/clock.h"

namespace lockstep::agent {

/// The agent's event loop: one thread, callbacks only from run(). Watches and timers must not outlive the loop; each
/// may be destroyed at any time, in its own callback too, and calls back no more then.
class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Calls back until stop(). What callbacks throw leaves run().
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

/// Readiness of a descriptor, which is borrowed, becomes non-blocking and must stay open meanwhile. One Watch per
/// descriptor.
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

  /// Calls `callback` after `delay`, in place of what was set before.
  void set(Seconds delay, std::function<void()> callback);
  void cancel();

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::agent
