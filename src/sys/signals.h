#pragma once

#include <csignal>

#include "sys/descriptor.h"

namespace lockstep::sys {

/// While it lives, SIGINT and SIGTERM do nothing but make fd() readable; afterwards the handlers before are back.
/// One that is ignored stays so: a shell that starts a program with `&` lets it ignore SIGINT, and means it.
/// One at a time in a process.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return read_.get(); }
  /// The next signal that came, or 0.
  int take();

 private:
  Descriptor read_, write_;
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace lockstep::sys
