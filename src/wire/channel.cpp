#include "wire/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::wire {
namespace {

/// An emptied buffer keeps at most this capacity.
constexpr std::size_t kKept = std::size_t{1} << 20;

/// Whether `fd` became ready for `events` before the deadline.
bool wait_for(int fd, short events, std::optional<Instant> deadline) {
  for (;;) {
    pollfd item{fd, events, 0};
    timespec rest{};
    if (deadline) {
      const auto left = std::max(*deadline - now(), Instant::duration::zero());
      const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
      rest = {whole.count(), std::chrono::duration_cast<std::chrono::nanoseconds>(left - whole).count()};
    }
    const int ready = ::ppoll(&item, 1, deadline ? &rest : nullptr, nullptr);
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) throw EngineError(std::string("[wire.channel] poll: ") + std::strerror(errno));
  }
}

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET; }

}  // namespace

void FrameReader::feed(std::span<const std::uint8_t> bytes) {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
    if (buffer_.capacity() > kKept) Bytes().swap(buffer_);
  } else if (begin_ >= buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<std::span<const std::uint8_t>> FrameReader::next_view() {
  const auto rest = std::span<const std::uint8_t>(buffer_).subspan(begin_);
  if (rest.size() < kFrameHeader) return std::nullopt;
  const std::size_t size =
      rest[0] | std::size_t{rest[1]} << 8 | std::size_t{rest[2]} << 16 | std::size_t{rest[3]} << 24;
  if (size > most_) throw WireError("[wire.channel] a frame claims " + std::to_string(size) + " bytes");
  if (rest.size() - kFrameHeader < size) return std::nullopt;
  begin_ += kFrameHeader + size;
  return rest.subspan(kFrameHeader, size);
}

std::optional<Bytes> FrameReader::next() {
  const auto view = next_view();
  if (!view) return std::nullopt;
  return Bytes(view->begin(), view->end());
}

void put_frame_header(std::span<std::uint8_t, kFrameHeader> header, std::size_t size) {
  if (size > kMaxFrame)
    throw WireError("[wire.channel] a message of " + std::to_string(size) + " bytes is more than the " +
                    std::to_string(kMaxFrame) + " that fit into a frame");
  for (std::size_t i = 0; i < kFrameHeader; ++i) header[i] = static_cast<std::uint8_t>(size >> (8 * i));
}

void append_frame(Bytes& out, std::span<const std::uint8_t> message) {
  std::array<std::uint8_t, kFrameHeader> header;
  put_frame_header(header, message.size());
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), message.begin(), message.end());
}

void Channel::send(std::span<const std::uint8_t> message, int fd) {
  std::array<std::uint8_t, kFrameHeader> header;
  put_frame_header(header, message.size());
  const std::size_t total = header.size() + message.size();
  for (std::size_t sent = 0; sent < total;) {
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    if (sent < header.size()) parts[count++] = {header.data() + sent, header.size() - sent};
    const std::size_t skipped = sent < header.size() ? 0 : sent - header.size();
    parts[count++] = {const_cast<std::uint8_t*>(message.data()) + skipped, message.size() - skipped};
    msghdr what{};
    what.msg_iov = parts.data();
    what.msg_iovlen = count;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (fd >= 0 && sent == 0) {
      what.msg_control = control.data();
      what.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&what);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    const ssize_t size = ::sendmsg(socket_.get(), &what, MSG_NOSIGNAL);
    if (size >= 0) {
      sent += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      wait_for(socket_.get(), POLLOUT, std::nullopt);
    } else if (errno != EINTR) {
      throw EngineError(is_gone(errno) ? "[wire.channel] the peer is gone"
                                       : std::string("[wire.channel] send: ") + std::strerror(errno));
    }
  }
}

std::optional<Bytes> Channel::receive(std::optional<Instant> deadline) {
  for (;;) {
    if (auto frame = reader_.next()) return frame;
    if (closed_) return std::nullopt;
    if (deadline && !wait_for(socket_.get(), POLLIN, deadline)) return std::nullopt;
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t size = sys::receive_some(socket_.get(), buffer, descriptors_, 0);
    if (size > 0) {
      reader_.feed(std::span(buffer).first(static_cast<std::size_t>(size)));
    } else if (size == 0 || is_gone(errno)) {
      closed_ = true;
    } else if (errno == EAGAIN) {
      wait_for(socket_.get(), POLLIN, deadline);
    } else if (errno != EINTR) {
      throw EngineError(std::string("[wire.channel] receive: ") + std::strerror(errno));
    }
  }
}

sys::Descriptor Channel::take_descriptor() {
  if (descriptors_.empty()) return {};
  sys::Descriptor first = std::move(descriptors_.front());
  descriptors_.erase(descriptors_.begin());
  return first;
}

}  // namespace lockstep::wire
