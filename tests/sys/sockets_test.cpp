#include "sys/sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <vector>

namespace lockstep::sys {
namespace {

using Bytes = std::vector<std::uint8_t>;

bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(Socket, PairsAreConnectedAndCloseOnExec) {
  for (auto* make : {&socket_pair, &packet_pair}) {
    auto [a, b] = make();
    EXPECT_TRUE(closes_on_exec(a.get()) && closes_on_exec(b.get()));
    ASSERT_EQ(::write(a.get(), "hi", 2), 2);
    char text[8];
    EXPECT_EQ(::read(b.get(), text, sizeof text), 2);
  }
  auto [read_end, write_end] = pipe_pair();
  EXPECT_TRUE(closes_on_exec(read_end.get()) && closes_on_exec(write_end.get()));
  ASSERT_EQ(::write(write_end.get(), "hi", 2), 2);
}

TEST(Socket, AnEventWithoutADescriptorIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs descriptors itself";
#endif
  EXPECT_TRUE(closes_on_exec(event_descriptor().get()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(event_descriptor(), EngineError);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Socket, DescriptorsTravelWithTheirMessage) {
  auto [a, b] = packet_pair();
  auto [read_end, write_end] = pipe_pair();
  send_with_fds(a.get(), Bytes{1, 2, 3}, std::vector<int>{read_end.get(), write_end.get()});
  send_with_fds(a.get(), Bytes{4}, {});
  auto [bytes, fds] = receive_with_fds(b.get());
  EXPECT_EQ(bytes, (Bytes{1, 2, 3}));
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_TRUE(closes_on_exec(fds[0].get()));
  ASSERT_EQ(::write(fds[1].get(), "x", 1), 1);
  char c = 0;
  EXPECT_EQ(::read(read_end.get(), &c, 1), 1);
  EXPECT_EQ(c, 'x');
  EXPECT_EQ(receive_with_fds(b.get()).first, Bytes{4});
  a.reset();
  EXPECT_TRUE(receive_with_fds(b.get()).first.empty());
}

TEST(Socket, TheLargestPacketPasses) {
  auto [a, b] = packet_pair();
  const std::vector<int> fds(16, a.get());
  send_with_fds(a.get(), Bytes(64 << 10, 7), fds);
  auto [bytes, received] = receive_with_fds(b.get());
  EXPECT_EQ(bytes.size(), std::size_t{64} << 10);
  EXPECT_EQ(received.size(), 16u);
}

TEST(Socket, WrongPacketsAreRefused) {
  auto [a, b] = packet_pair();
  EXPECT_THROW(send_with_fds(a.get(), {}, {}), InternalError);
  EXPECT_THROW(send_with_fds(a.get(), Bytes((64 << 10) + 1), {}), InternalError);
  EXPECT_THROW(send_with_fds(a.get(), Bytes{1}, std::vector<int>(17, a.get())), InternalError);
  ASSERT_GT(::write(a.get(), Bytes(70'000).data(), 70'000), 0);
  EXPECT_THROW(receive_with_fds(b.get()), EngineError);
  b.reset();
  EXPECT_THROW(send_with_fds(a.get(), Bytes{1}, {}), EngineError);
}

TEST(Socket, EndWithUnreadDataIsAnEnd) {
  auto [a, b] = packet_pair();
  send_with_fds(a.get(), Bytes{1}, {});
  b.reset();
  EXPECT_TRUE(receive_with_fds(a.get()).first.empty());
}

TEST(Socket, MemoryIsSealed) {
  const Bytes contents(100'000, 42);
  const Descriptor memory = sealed_memory("test", contents);
  EXPECT_TRUE(closes_on_exec(memory.get()));
  EXPECT_EQ(read_all(memory.get()), contents);
  EXPECT_EQ(read_all(memory.get()), contents);
  EXPECT_EQ(::pwrite(memory.get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(memory.get(), 5), 0);
  EXPECT_EQ(::mmap(nullptr, contents.size(), PROT_WRITE, MAP_SHARED, memory.get(), 0), MAP_FAILED);
  EXPECT_TRUE(read_all(sealed_memory("empty", {}).get()).empty());
}

TEST(Socket, FlagsAreSet) {
  auto [a, b] = pipe_pair();
  set_nonblocking(a.get(), true);
  char c;
  EXPECT_EQ(::read(a.get(), &c, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  set_nonblocking(a.get(), false);
  EXPECT_EQ(::fcntl(a.get(), F_GETFL) & O_NONBLOCK, 0);
  inherit_on_exec(a.get());
  EXPECT_FALSE(closes_on_exec(a.get()));
  EXPECT_THROW(set_nonblocking(-1, true), EngineError);
}

}  // namespace
}  // namespace lockstep::sys
