#pragma once

#include <optional>
#include <span>

#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::driver {

/// The driver's end of a run's connection to the head agent, which relays to the agents of other nodes. The socket is
/// borrowed and outlives the run. Sending blocks, but not for long: the agent always reads. Messages to an agent that
/// is gone are dropped; receive() then throws.
class AgentLink {
 public:
  struct Received {
    int node;
    wire::AgentToDriver message;
  };

  AgentLink(int socket, int run) : socket_(socket), run_(run) {}
  /// To wait for messages; -1 after give_up(), because a dead socket is always readable.
  int fd() const { return given_up_ ? -1 : socket_; }
  /// The agent counts as lost: from now on nothing is sent to it or received from it.
  void give_up() { given_up_ = broken_ = true; }

  template <class M>
  void send(int node, const M& message) {
    send_bytes(wire::encode({run_, node}, message));
  }

  /// The next message, from the buffer or from one non-blocking read. Nothing if there is no complete message. Throws
  /// EngineError if the agent is gone.
  std::optional<Received> receive();

 private:
  void send_bytes(const Bytes& message);
  void send_all(std::span<const std::uint8_t> bytes, int flags);
  bool read_some();

  int socket_;
  int run_;              ///< for the envelopes
  bool broken_ = false;  ///< nothing can be sent any more
  bool given_up_ = false;
  wire::FrameReader reader_;
};

}  // namespace lockstep::driver
