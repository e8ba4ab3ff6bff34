#include "agent/driver_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.h"

namespace lockstep::agent {
namespace {

/// If more than this waits to be sent, workers are no longer read until it has fallen to half.
constexpr std::size_t kFull = std::size_t{8} << 20;
/// An idle buffer keeps at most this capacity.
constexpr std::size_t kKept = std::size_t{1} << 20;

}  // namespace

DriverLink::DriverLink(Loop& loop, sys::Descriptor socket, int node, Handlers handlers)
    : loop_(loop),
      socket_(std::move(socket)),
      handlers_(std::move(handlers)),
      watch_(loop, socket_.get()),
      node_(node) {
  watch_.on_readable([this] { read(); });
}

void DriverLink::read() {
  static std::array<std::uint8_t, std::size_t{256} << 10> buffer;
  const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return close();
  try {
    reader_.feed(std::span(buffer).first(static_cast<std::size_t>(size)));
    while (const auto frame = closed_ ? std::nullopt : reader_.next_view()) {
      if (const auto envelope = wire::envelope_of(*frame); envelope.node != node_) {
        handlers_.foreign(envelope, *frame);
        continue;
      }
      auto message = wire::decode_addressed<wire::DriverToAgent>(*frame);
      handlers_.message(message);
    }
  } catch (const wire::WireError& error) {
    log_error("the driver sent something that is not a message: " + std::string(error.what()));
    close();
  }
}

void DriverLink::close() {
  if (closed_) return;
  closed_ = true;
  watch_.pause();
  handlers_.closed();
}

void DriverLink::sent_more() {
  if (!flush_is_due_) {
    // Posted, so that messages of all callbacks that are due now are sent together.
    flush_is_due_ = true;
    loop_.post([this] { flush(); });
  }
  if (!full_ && waiting() > kFull) {
    full_ = true;
    handlers_.full(true);
  }
}

void DriverLink::flush() {
  flush_is_due_ = false;
  while (!closed_) {
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      if (sending_.capacity() > kKept) Bytes().swap(sending_);
      if (gathered_.empty()) break;
      sending_.swap(gathered_);
    }
    const ssize_t size =
        ::send(socket_.get(), sending_.data() + sent_, sending_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent_ += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      flush_is_due_ = true;
      watch_.once_writable([this] { flush(); });
      break;
    } else if (errno != EINTR) {
      return close();
    }
  }
  if (full_ && waiting() <= kFull / 2) {
    full_ = false;
    handlers_.full(false);
  }
}

}  // namespace lockstep::agent
