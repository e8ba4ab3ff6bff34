#pragma once

#include <lockstep/value.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "agent/loop.h"
#include "sys/descriptor.h"

namespace lockstep::agent {

/// A TCP connection between agents under TLS 1.3. Both sides prove that they know the run's secret: it is an external
/// pre-shared key, used with ephemeral keys (psk_dhe_ke), and no other way in is enabled: no certificate, no
/// resumption, no early data.
///
/// The handlers may destroy the stream.
class TlsStream {
 public:
  enum class Side { head, node };
  struct Handlers {
    std::function<void()> proved;  ///< the other side knows the secret
    std::function<void(std::span<const std::uint8_t>)> data;
    std::function<void()> sent;               ///< fewer than kLow bytes wait to be sent
    std::function<void(std::string)> closed;  ///< the last call, with the reason
  };
  static constexpr std::size_t kLow = std::size_t{64} << 10;

  /// `socket` is connected. Throws EngineError if OpenSSL cannot be set up.
  TlsStream(Loop& loop, sys::Descriptor socket, const Bytes& secret, Side side, Handlers handlers);
  ~TlsStream();

  bool is_proved() const;
  void send(std::span<const std::uint8_t> bytes);
  /// Bytes that wait to be sent.
  std::size_t waiting() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::agent
