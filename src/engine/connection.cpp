#include "engine/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

constexpr auto kWorkersEndWithin = 5s;

/// Reads and drops data until the other side has closed the socket.
void wait_for_end(int socket, Instant deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    pollfd item{socket, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&item, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return;
    std::array<char, 4096> dropped;
    if (ready > 0 && ::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

Connection::Connection(int control) : owner_(::getpid()) {
  auto [ours, theirs] = sys::socket_pair();
  constexpr std::array<std::uint8_t, 3> kWord{'r', 'u', 'n'};  // src/agent/control_link.h
  const std::array fds{theirs.get()};
  sys::send_with_fds(control, kWord, fds);
  socket_ = std::move(ours);
}

Connection& Connection::operator=(Connection&& other) noexcept {
  if (this != &other) {
    close();
    socket_ = std::move(other.socket_);
    owner_ = other.owner_;
  }
  return *this;
}

Connection::operator bool() const { return socket_ && owner_ == ::getpid(); }

void Connection::close() {
  // Closing alone is not enough: while a fork of this process has a copy, the agent would not see the end.
  if (*this) {
    ::shutdown(socket_.get(), SHUT_WR);
    wait_for_end(socket_.get(), now() + kWorkersEndWithin);
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  socket_.reset();
}

}  // namespace lockstep::engine
