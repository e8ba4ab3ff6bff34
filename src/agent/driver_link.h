#pragma once

#include <functional>
#include <span>

#include "agent/loop.h"
#include "sys/descriptor.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::agent {

/// The agent's end of a run's connection. It always reads. Outgoing messages are buffered while the driver is slow, and
/// dropped once the driver is gone.
class DriverLink {
 public:
  struct Handlers {
    std::function<void(wire::Addressed<wire::DriverToAgent>&)> message;
    std::function<void(const wire::Envelope&, std::span<const std::uint8_t>)> foreign;  ///< for another node
    std::function<void()> closed;    ///< the driver is gone or sent something invalid; the last call
    std::function<void(bool)> full;  ///< true: too much waits to be sent, stop producing; false: continue
  };

  /// `node`: this one, which is in the envelopes.
  DriverLink(Loop& loop, sys::Descriptor socket, int node, Handlers handlers);

  /// Every later message carries this run id.
  void set_run(int run) { run_ = run; }
  template <class M>
  void send(const M& message) {
    send_for(node_, message);
  }
  /// Says something about another node.
  template <class M>
  void send_for(int node, const M& message) {
    if (closed_) return;
    wire::append_message(gathered_, {run_, node}, message);
    sent_more();
  }
  /// Sends on a message of another node.
  void pass_on(std::span<const std::uint8_t> message) {
    if (closed_) return;
    wire::append_frame(gathered_, message);
    sent_more();
  }
  /// Sends on a worker's message.
  void relay(int attempt, int rank, std::span<const std::uint8_t> message) {
    if (closed_) return;
    wire::append_from_worker(gathered_, {run_, node_}, attempt, rank, message);
    sent_more();
  }
  bool full() const { return full_; }

 private:
  void read();
  void sent_more();
  void flush();
  void close();
  std::size_t waiting() const { return gathered_.size() + sending_.size() - sent_; }

  Loop& loop_;
  sys::Descriptor socket_;
  Handlers handlers_;
  Watch watch_;
  wire::FrameReader reader_;
  const int node_;
  int run_ = 0;
  Bytes gathered_;  ///< appended to
  Bytes sending_;   ///< being written, from sent_ on
  std::size_t sent_ = 0;
  bool flush_is_due_ = false;  ///< posted, or waiting for the socket
  bool full_ = false;
  bool closed_ = false;
};

}  // namespace lockstep::agent
