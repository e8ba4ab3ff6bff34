#pragma once

#include <cstdint>
#include <utility>

#include "sys/descriptor.h"

namespace lockstep::horovod {

/// A socket that an epoll instance watches. It is removed from epoll before it is closed: while a forked child holds a
/// copy, closing alone would not stop its events.
class Watched {
 public:
  /// Not watched yet. `epoll` must outlive it.
  Watched(const sys::Descriptor& epoll, sys::Descriptor socket) : epoll_(epoll.get()), socket_(std::move(socket)) {}
  Watched(Watched&&) = default;
  Watched& operator=(Watched&&) = delete;
  ~Watched() { forget(); }

  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// Watches it for `events` under a number, or changes the events. Returns false if the system refuses.
  bool watch(std::uint64_t id, std::uint32_t events);
  void forget();

 private:
  int epoll_;
  sys::Descriptor socket_;
  bool watched_ = false;
};

}  // namespace lockstep::horovod
