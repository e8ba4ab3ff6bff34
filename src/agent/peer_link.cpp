#include "agent/peer_link.h"

#include <algorithm>
#include <array>

namespace lockstep::agent {
namespace {

constexpr std::size_t kStreamSize = 4;
constexpr std::size_t kChunk = std::size_t{32} << 10;
/// A Hello or a frame of this side is smaller.
constexpr std::size_t kMostInFrame = std::size_t{64} << 10;

/// Appends a frame with the stream's number and its bytes.
void append(Bytes& out, PeerLink::Stream stream, std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, wire::kFrameHeader> header;
  wire::put_frame_header(header, kStreamSize + bytes.size());
  out.insert(out.end(), header.begin(), header.end());
  for (std::size_t i = 0; i < kStreamSize; ++i) out.push_back(static_cast<std::uint8_t>(stream >> (8 * i)));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

PeerLink::PeerLink(Loop& loop, sys::Descriptor socket, const Bytes& secret, TlsStream::Side side, Handlers handlers)
    : loop_(loop), handlers_(std::make_shared<Handlers>(std::move(handlers))), reader_(kMostInFrame) {
  tls_ = std::make_unique<TlsStream>(loop, std::move(socket), secret, side,
                                     TlsStream::Handlers{.proved =
                                                             [this] {
                                                               const auto exists = exists_;
                                                               const auto handlers = handlers_;
                                                               handlers->proved();
                                                               if (exists.use_count() > 1) pump();
                                                             },
                                                         .data = [this](auto bytes) { read(bytes); },
                                                         .sent = [this] { pump(); },
                                                         .closed = [this](std::string why) { end(std::move(why)); }});
}

void PeerLink::replace(Handlers handlers) { handlers_ = std::make_shared<Handlers>(std::move(handlers)); }

void PeerLink::tell_bytes(std::span<const std::uint8_t> message) {
  append(urgent_.emplace_back(), 0, message);
  pump();
}

void PeerLink::send(Stream stream, Bytes bytes) {
  waiting_ += bytes.size();
  queue_.push_back({stream, std::move(bytes)});
  pump();
}

void PeerLink::forget(Stream stream) {
  std::erase_if(queue_, [&](const Queued& each) {
    if (each.stream != stream) return false;
    waiting_ -= each.bytes.size() - each.done;
    return true;
  });
}

void PeerLink::pump() {
  if (!is_proved()) return;
  while (tls_->waiting() < TlsStream::kLow) {
    if (!urgent_.empty()) {
      tls_->send(urgent_.front());
      urgent_.pop_front();
    } else if (!queue_.empty()) {
      Queued& first = queue_.front();
      const auto part =
          std::span(first.bytes).subspan(first.done).first(std::min(kChunk, first.bytes.size() - first.done));
      Bytes frame;
      append(frame, first.stream, part);
      tls_->send(frame);
      first.done += part.size();
      waiting_ -= part.size();
      if (first.done == first.bytes.size()) queue_.pop_front();
    } else {
      break;
    }
  }
  if (const auto handlers = handlers_; queue_.empty() && handlers->sent) handlers->sent();
}

void PeerLink::read(std::span<const std::uint8_t> bytes) {
  const auto exists = exists_;
  last_heard_ = now();
  try {
    reader_.feed(bytes);
    while (const auto frame = exists.use_count() > 1 && tls_ ? reader_.next_view() : std::nullopt) {
      if (frame->size() < kStreamSize) throw wire::WireError("a frame without a stream");
      Stream stream = 0;
      for (std::size_t i = 0; i < kStreamSize; ++i) stream |= Stream{(*frame)[i]} << (8 * i);
      const auto rest = frame->subspan(kStreamSize);
      const auto handlers = handlers_;
      if (stream == 0)
        handlers->message(rest);
      else
        handlers->data(stream, rest);
    }
  } catch (const wire::WireError& error) {
    if (exists.use_count() > 1) end("it sent something that is not a message: " + std::string(error.what()));
  }
}

void PeerLink::mute() {
  tls_.reset();
  replace({.proved = [] {}, .message = [](auto) {}, .data = [](auto, auto) {}, .sent = {}, .closed = [](auto) {}});
}

void PeerLink::end(std::string why) {
  if (!tls_) return;
  tls_.reset();
  const auto handlers = handlers_;
  handlers->closed(std::move(why));
}

}  // namespace lockstep::agent
