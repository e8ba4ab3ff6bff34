#pragma once

#include "sys/descriptor.h"

namespace lockstep::engine {

/// A run's own connection to the head agent: a stream socket, which is passed to the agent over the control connection.
/// When it is closed, the agent kills the run's workers and nothing else. Copies in forked processes neither keep it
/// open nor close it.
class Connection {
 public:
  Connection() = default;
  /// `control` is the head's socket; any thread may use it. Throws EngineError if the agent is gone.
  explicit Connection(int control);
  Connection(Connection&&) noexcept = default;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection() { close(); }

  int fd() const { return socket_.get(); }
  /// Whether it is open, and was made by this process and not by its parent.
  explicit operator bool() const;
  /// Returns when the agent has closed it too and the run's workers are gone, but waits at most five seconds.
  void close();

 private:
  sys::Descriptor socket_;
  int owner_ = 0;  ///< the process that made it
};

}  // namespace lockstep::engine
