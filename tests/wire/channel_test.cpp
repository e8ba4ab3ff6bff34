#include "wire/channel.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::wire {
namespace {

Bytes numbered(std::size_t size, int seed) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(seed));
  return bytes;
}

TEST(FrameReader, CutsFramesWhereverTheStreamWasCut) {
  std::mt19937 random(1);
  std::vector<Bytes> frames;
  Bytes stream;
  for (int i = 0; i < 200; ++i)
    append_frame(stream, frames.emplace_back(numbered(random() % (i % 50 == 0 ? 200'000 : 300), i)));
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, stream.size()}) {
    FrameReader reader;
    std::size_t next = 0;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      reader.feed(std::span(stream).subspan(at, std::min(step, stream.size() - at)));
      while (const auto frame = reader.next()) ASSERT_EQ(*frame, frames.at(next++));
    }
    EXPECT_EQ(next, frames.size());
    EXPECT_EQ(reader.pending(), 0u);
  }
}

TEST(FrameReader, RefusesFramesThatAreTooLarge) {
  FrameReader reader;
  reader.feed(Bytes{1, 0, 0, 0x80});
  EXPECT_THROW(reader.next(), WireError);
  reader = {};
  reader.feed(Bytes{0, 0, 0, 0x80});
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(Channel, CarriesFramesOfAllSizesBothWays) {
  auto [a, b] = sys::socket_pair();
  Channel left(std::move(a)), right(std::move(b));
  const std::vector<std::size_t> sizes{0, 1, 3, 65535, 65536, 10'000'000, 5};
  std::thread echo([&] {
    while (const auto frame = right.receive()) right.send(*frame);
  });
  std::thread sender([&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) left.send(numbered(sizes[i], static_cast<int>(i)));
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(left.receive(), numbered(sizes[i], static_cast<int>(i)));
  sender.join();
  left = Channel(sys::Descriptor());
  echo.join();
  EXPECT_TRUE(right.closed());
}

TEST(Channel, DeadlinePassesWithoutClosing) {
  auto [a, b] = sys::socket_pair();
  Channel left(std::move(a)), right(std::move(b));
  const Instant begin = now();
  EXPECT_EQ(left.receive(begin + 20ms), std::nullopt);
  EXPECT_GE(now() - begin, 20ms);
  EXPECT_FALSE(left.closed());
  right.send(Bytes{1});
  EXPECT_EQ(left.receive(now() + 10s), Bytes{1});
}

TEST(Channel, WorksOnNonblockingSockets) {
  auto [a, b] = sys::socket_pair();
  sys::set_nonblocking(a.get(), true);
  sys::set_nonblocking(b.get(), true);
  Channel left(std::move(a)), right(std::move(b));
  std::thread sender([&] { left.send(numbered(3'000'000, 4)); });
  EXPECT_EQ(right.receive(), numbered(3'000'000, 4));
  sender.join();
}

TEST(Channel, TellsWhenThePeerIsGone) {
  auto [a, b] = sys::socket_pair();
  Channel left(std::move(a));
  left.send(Bytes{1});
  b.reset();
  EXPECT_THROW(left.send(Bytes{2}), EngineError);
  EXPECT_EQ(left.receive(), std::nullopt);
  EXPECT_TRUE(left.closed());
}

TEST(Channel, FrameCutByTheEndIsNoFrame) {
  auto [a, b] = sys::socket_pair();
  Channel left(std::move(a));
  ASSERT_EQ(::write(b.get(), "\x05\x00\x00\x00hal", 7), 7);
  b.reset();
  EXPECT_EQ(left.receive(), std::nullopt);
  EXPECT_TRUE(left.closed());
}

}  // namespace
}  // namespace lockstep::wire
