#include "driver/agent_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::driver {
namespace {

constexpr std::size_t kReadSize = 256 << 10;

[[noreturn]] void lost(const char* what) {
  throw EngineError(std::string("[driver] the agent is gone (") + what +
                    "); its own message, if any, is on standard error");
}

}  // namespace

void AgentLink::send_bytes(const Bytes& message) {
  Bytes frame;
  wire::append_frame(frame, message);
  std::size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t count = ::send(socket_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) lost(strerror(errno));
    sent += static_cast<std::size_t>(count);
  }
}

bool AgentLink::read_some() {
  static thread_local std::array<std::uint8_t, kReadSize> chunk;
  for (;;) {
    const ssize_t count = ::recv(socket_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count <= 0) lost(count == 0 ? "it closed the connection" : strerror(errno));
    reader_.feed(std::span(chunk).first(static_cast<std::size_t>(count)));
    return true;
  }
}

std::optional<wire::AgentToDriver> AgentLink::receive() {
  std::optional<Bytes> frame = reader_.next();
  if (!frame && read_some()) frame = reader_.next();
  if (!frame) return std::nullopt;
  return wire::decode<wire::AgentToDriver>(*frame);
}

}  // namespace lockstep::driver
