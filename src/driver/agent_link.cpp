#include "driver/agent_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::driver {
namespace {

constexpr std::size_t kReadSize = 256 << 10;

[[noreturn]] void lost(const char* what) {
  throw EngineError(std::string("[driver] the agent is gone (") + what +
                    "); its own message, if any, is on standard error");
}

}  // namespace

void AgentLink::send_bytes(const Bytes& message) {
  std::array<std::uint8_t, wire::kFrameHeader> header;
  wire::put_frame_header(header, message.size());
  send_all(header, MSG_MORE);
  send_all(message, 0);
}

void AgentLink::send_all(std::span<const std::uint8_t> bytes, int flags) {
  while (!bytes.empty() && !broken_) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags);
    if (count < 0 && errno == EINTR) continue;
    broken_ = count <= 0;
    if (!broken_) bytes = bytes.subspan(static_cast<std::size_t>(count));
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

std::optional<AgentLink::Received> AgentLink::receive() {
  if (given_up_) return std::nullopt;
  std::optional<Bytes> frame = reader_.next();
  if (!frame && read_some()) frame = reader_.next();
  if (!frame) return std::nullopt;
  auto addressed = wire::decode_addressed<wire::AgentToDriver>(*frame);
  return Received{addressed.envelope.node, std::move(addressed.message)};
}

}  // namespace lockstep::driver
