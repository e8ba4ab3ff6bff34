#pragma once

#include <functional>
#include <span>

#include "agent/loop.h"
#include "sys/descriptor.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::agent {

/// The agent's end of the connection to the driver. Always reads; what is sent gathers while the driver is slow.
class DriverLink {
 public:
  struct Handlers {
    std::function<void(wire::DriverToAgent&)> message;
    std::function<void()> closed;    ///< the driver is gone, or sent what is no message; the last call of all
    std::function<void(bool)> full;  ///< true: too much waits to be sent, produce no more; false: go on
  };

  DriverLink(Loop& loop, sys::Descriptor socket, Handlers handlers);

  template <class M>
  void send(const M& message) {
    wire::append_message(gathered_, message);
    sent_more();
  }
  /// A worker's message.
  void relay(int attempt, int rank, std::span<const std::uint8_t> message) {
    wire::append_from_worker(gathered_, attempt, rank, message);
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
  Bytes gathered_;  ///< appended to
  Bytes sending_;   ///< being written, from sent_ on
  std::size_t sent_ = 0;
  bool flush_is_due_ = false;  ///< posted, or waits for the socket
  bool full_ = false;
  bool closed_ = false;
};

}  // namespace lockstep::agent
