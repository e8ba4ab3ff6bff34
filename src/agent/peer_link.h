#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "agent/loop.h"
#include "agent/tls_stream.h"
#include "wire/channel.h"
#include "wire/codec.h"
#include "wire/link.h"

namespace lockstep::agent {

/// The connection between the agents of two nodes: many streams over one TLS connection. Its frames are small: the
/// number of a stream (4 bytes, little endian), then some of the stream's bytes. On stream 0 these are one message of
/// wire/link.h; those go first, so that signs of life do not wait behind large messages.
///
/// The handlers may destroy the link.
class PeerLink {
 public:
  using Stream = std::uint32_t;
  struct Handlers {
    std::function<void()> proved;
    std::function<void(std::span<const std::uint8_t>)> message;       ///< on stream 0
    std::function<void(Stream, std::span<const std::uint8_t>)> data;  ///< on another stream
    std::function<void()> sent;                                       ///< little waits to be sent; may be empty
    std::function<void(std::string)> closed;                          ///< the last call, with the reason
  };

  PeerLink(Loop& loop, sys::Descriptor socket, const Bytes& secret, TlsStream::Side side, Handlers handlers);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  /// Other handlers from now on. May be called by one of the present ones.
  void replace(Handlers handlers);
  bool is_proved() const { return tls_ && tls_->is_proved(); }
  template <class M>
  void tell(const M& message) {
    tell_bytes(wire::encode(message));
  }
  void tell_bytes(std::span<const std::uint8_t> message);
  void send(Stream stream, Bytes bytes);
  /// Drops what waits on this stream.
  void forget(Stream stream);
  /// Bytes of streams that wait to be sent.
  std::size_t waiting() const { return waiting_; }
  /// When something last arrived.
  Instant last_heard() const { return last_heard_; }
  /// Closes the connection. No handler is called any more.
  void mute();

 private:
  struct Queued {
    Stream stream;
    Bytes bytes;
    std::size_t done = 0;
  };
  void read(std::span<const std::uint8_t> bytes);
  void pump();
  void end(std::string why);

  Loop& loop_;
  std::shared_ptr<Handlers> handlers_;  ///< shared, so that one that is replaced lives until it returns
  std::deque<Bytes> urgent_;            ///< frames of stream 0
  std::deque<Queued> queue_;
  std::size_t waiting_ = 0;
  wire::FrameReader reader_;
  Instant last_heard_ = now();
  std::unique_ptr<TlsStream> tls_;
  std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);  ///< for callbacks that may come later
};

}  // namespace lockstep::agent
