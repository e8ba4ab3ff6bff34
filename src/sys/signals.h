#pragma once

namespace lockstep::sys {

/// While a watch exists, SIGINT, SIGTERM and SIGUSR1 do not end the process; they make fd() of every watch readable.
/// When the last watch is destroyed, the previous handlers are restored. An ignored signal stays ignored: a shell that
/// starts a program with `&` sets SIGINT to ignored on purpose. A SIGUSR1 for which the program has a handler is left
/// to it. Any thread may make a watch, and several may exist at once. A new watch also gets a signal that others are
/// still handling. In a fork of the process that has no watch of its own, signals do what they did before the first
/// watch.
class SignalWatch {
 public:
  /// What else a signal does. If there are several watches, the first in this list counts.
  enum class Then {
    nothing,  ///< the owner of the watch handles it
    at_once,  ///< the previous handler is called at once; a default action waits until the last watch is gone
    later,    ///< it is raised again when the last watch is gone
  };

  explicit SignalWatch(Then then = Then::nothing);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const;
  /// The next signal that arrived, or 0.
  int take();
  /// The signal was what its sender wanted to say, and is not raised again.
  void forgive(int signal);
  /// Lets this watch alone see `signal`, as if it had arrived. Any thread may call it.
  void put(int signal);

 private:
  struct Slot;
  struct All;
  Slot* slot_;
};

}  // namespace lockstep::sys
