#include "sys/sockets.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace lockstep::sys {
namespace {

constexpr std::size_t kMaxPacket = std::size_t{64} << 10;
constexpr std::size_t kMaxFds = 16;

[[noreturn]] void fail(const char* what) {
  throw EngineError(std::string("[sys.sockets] ") + what + ": " + std::strerror(errno));
}

std::pair<Descriptor, Descriptor> local_pair(int type) {
  std::array<int, 2> fds;
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds.data()) != 0) fail("socketpair");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

/// Adds the descriptors that a received message brought.
void take_fds(msghdr& what, std::vector<Descriptor>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&what); header != nullptr; header = CMSG_NXTHDR(&what, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

std::pair<Descriptor, Descriptor> socket_pair() { return local_pair(SOCK_STREAM); }

std::pair<Descriptor, Descriptor> packet_pair() { return local_pair(SOCK_SEQPACKET); }

std::pair<Descriptor, Descriptor> pipe_pair() {
  std::array<int, 2> fds;
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) fail("pipe");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

Descriptor event_descriptor() {
  Descriptor made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made) fail("eventfd");
  return made;
}

void send_with_fds(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds) {
  // An empty packet would look like the end of the stream.
  if (bytes.empty() || bytes.size() > kMaxPacket || fds.size() > kMaxFds)
    throw InternalError("[sys.sockets] a packet of " + std::to_string(bytes.size()) + " bytes and " +
                        std::to_string(fds.size()) + " descriptors");
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control{};
  iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr what{};
  what.msg_iov = &part;
  what.msg_iovlen = 1;
  if (!fds.empty()) {
    what.msg_control = control.data();
    what.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&what);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &what, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) fail("send");
}

std::pair<std::vector<std::uint8_t>, std::vector<Descriptor>> receive_with_fds(int socket) {
  std::vector<std::uint8_t> bytes(kMaxPacket);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr what{};
  what.msg_iov = &part;
  what.msg_iovlen = 1;
  what.msg_control = control.data();
  what.msg_controllen = control.size();
  ssize_t size;
  do size = ::recvmsg(socket, &what, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size < 0 && errno != ECONNRESET) fail("receive");
  std::vector<Descriptor> fds;
  if (size > 0) take_fds(what, fds);
  if (size > 0 && (what.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    throw EngineError("[sys.sockets] a packet was larger than " + std::to_string(kMaxPacket) +
                      " bytes or had more than " + std::to_string(kMaxFds) + " descriptors");
  bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return {std::move(bytes), std::move(fds)};
}

ssize_t receive_some(int socket, std::span<std::uint8_t> into, std::vector<Descriptor>& fds, int flags) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
  iovec part{into.data(), into.size()};
  msghdr what{};
  what.msg_iov = &part;
  what.msg_iovlen = 1;
  what.msg_control = control.data();
  what.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket, &what, flags | MSG_CMSG_CLOEXEC);
  if (size > 0) take_fds(what, fds);
  return size;
}

Descriptor sealed_memory(const char* name, std::span<const std::uint8_t> bytes) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create");
  while (!bytes.empty()) {
    const ssize_t size = ::write(memory.get(), bytes.data(), bytes.size());
    if (size >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    else if (errno != EINTR)
      fail("write to memory");
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    fail("seal memory");
  return memory;
}

std::vector<std::uint8_t> read_all(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) fail("fstat");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(info.st_size));
  // pread: the position is shared by all processes that inherited the descriptor.
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t size = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size > 0)
      done += static_cast<std::size_t>(size);
    else if (size == 0)
      bytes.resize(done);
    else if (errno != EINTR)
      fail("read");
  }
  return bytes;
}

void set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) != 0) fail("fcntl");
}

void inherit_on_exec(int fd) {
  if (::fcntl(fd, F_SETFD, 0) != 0) fail("fcntl");
}

void close_on_exec(int fd) {
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) fail("fcntl");
}

void close_all_but(int kept) {
  // Old kernels lack the call; there the descriptors stay open.
  const auto number = static_cast<unsigned>(kept);
  if (number > 3) ::syscall(SYS_close_range, 3u, number - 1, 0u);
  ::syscall(SYS_close_range, number + 1, ~0u, 0u);
}

}  // namespace lockstep::sys
