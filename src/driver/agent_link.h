#pragma once

#include <optional>
#include <span>

#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::driver {

/// The driver's end of the connection to its agent. The socket is borrowed: it outlives the run.
/// Sending waits; the agent always reads, whatever it has to send itself. Throws EngineError when the agent is gone.
class AgentLink {
 public:
  explicit AgentLink(int socket) : socket_(socket) {}
  int fd() const { return socket_; }

  template <class M>
  void send(const M& message) {
    send_bytes(wire::encode(message));
  }

  /// The next message: of what was read before, else of one read that does not wait. Nothing when that holds no whole
  /// message.
  std::optional<wire::AgentToDriver> receive();

 private:
  void send_bytes(const Bytes& message);
  void send_all(std::span<const std::uint8_t> bytes, int flags);
  bool read_some();

  int socket_;
  wire::FrameReader reader_;
};

}  // namespace lockstep::driver
