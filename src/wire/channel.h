#pragma once

#include <lockstep/value.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "sys/descriptor.h"

namespace lockstep::wire {

/// Both sides refuse frames larger than this.
inline constexpr std::size_t kMaxFrame = std::size_t{2} << 30;
/// A frame is this many bytes of length (little endian), then that many bytes.
inline constexpr std::size_t kFrameHeader = 4;

/// Splits a stream of bytes into frames. Its memory is proportional to the bytes it was fed.
class FrameReader {
 public:
  /// `most`: the largest frame that is taken.
  explicit FrameReader(std::size_t most) : most_(most) {}
  FrameReader() = default;
  /// Adds what was read.
  void feed(std::span<const std::uint8_t> bytes);
  /// The next whole frame, or nothing yet. Throws WireError when the length is too large.
  std::optional<Bytes> next();
  /// The same without a copy: a view that is valid until the next feed().
  std::optional<std::span<const std::uint8_t>> next_view();
  /// Bytes of the incomplete frame.
  std::size_t pending() const { return buffer_.size() - begin_; }

 private:
  std::size_t most_ = kMaxFrame;
  Bytes buffer_;
  std::size_t begin_ = 0;
};

/// Appends the frame of `message` to `out`. Throws WireError when it exceeds kMaxFrame.
void append_frame(Bytes& out, std::span<const std::uint8_t> message);
/// Writes the header of a frame of `size` bytes. Throws WireError when that exceeds kMaxFrame.
void put_frame_header(std::span<std::uint8_t, kFrameHeader> header, std::size_t size);

/// A blocking stream of frames over a socket, for processes with a thread for it (workers, tests). One thread may read
/// while another writes. Owns the socket.
class Channel {
 public:
  explicit Channel(sys::Descriptor socket) : socket_(std::move(socket)) {}
  int fd() const { return socket_.get(); }
  /// Sends one complete frame, with a descriptor if `fd` is one. Throws EngineError if the peer is gone.
  void send(std::span<const std::uint8_t> message, int fd = -1);
  /// The next frame; nothing at end of stream or when `deadline` passes (see closed()).
  std::optional<Bytes> receive(std::optional<Instant> deadline = std::nullopt);
  bool closed() const { return closed_; }
  /// The next descriptor that came with the frames; empty if there is none.
  sys::Descriptor take_descriptor();

 private:
  sys::Descriptor socket_;
  FrameReader reader_;
  std::vector<sys::Descriptor> descriptors_;
  bool closed_ = false;
};

}  // namespace lockstep::wire
