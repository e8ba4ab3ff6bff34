#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::agent {

/// The way from the head agent to the agents of other nodes.
class Relay {
 public:
  using Stream = std::uint32_t;

  /// One connection of the driver; its stream on every node.
  class Client {
   public:
    virtual ~Client() = default;
    /// A message for the driver.
    virtual void from_node(int node, std::span<const std::uint8_t> frame) = 0;
    virtual void node_lost(int node, const std::string& why) = 0;
    /// After close(): nothing of this connection is left on the node.
    virtual void node_ended(int node) = 0;
  };

  virtual ~Relay() = default;
  /// Returns the number of a new stream. `client` is borrowed until leave().
  virtual Stream join(Client& client) = 0;
  virtual void leave(Stream stream) = 0;
  /// Relays a message of the driver. Returns false if there is no such node.
  virtual bool send(int node, Stream stream, std::span<const std::uint8_t> frame) = 0;
  /// Ends the stream's workers on the node. node_ended() or node_lost() follows. Returns false if there is no such
  /// node.
  virtual bool close(int node, Stream stream) = 0;
  /// The driver is slow to read: the node sends nothing until `hold` is false.
  virtual void hold(int node, Stream stream, bool hold) = 0;
};

}  // namespace lockstep::agent
