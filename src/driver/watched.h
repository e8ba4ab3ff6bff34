#pragma once

#include <cstdint>
#include <utility>

#include "sys/descriptor.h"

namespace lockstep::driver {

/// A socket that an epoll instance watches, and forgets before it is closed: while a forked child holds a copy of the
/// socket, closing it does not end its events, which nobody could then take.
class Watched {
 public:
  /// Not watched yet. `epoll` must outlive it.
  Watched(const sys::Descriptor& epoll, sys::Descriptor socket) : epoll_(epoll.get()), socket_(std::move(socket)) {}
  Watched(Watched&&) = default;
  Watched& operator=(Watched&&) = delete;
  ~Watched() { forget(); }

  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// Begins to watch it for `events`, under a number, or changes what it is watched for. False: the system refuses.
  bool watch(std::uint64_t id, std::uint32_t events);
  void forget();

 private:
  int epoll_;
  sys::Descriptor socket_;
  bool watched_ = false;
};

}  // namespace lockstep::driver
