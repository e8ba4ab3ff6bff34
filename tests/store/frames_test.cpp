#include "store/frames.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/socket.h>

#include <random>
#include <string>

#include "sys/sockets.h"

namespace lockstep::store {
namespace {

std::string header_of(std::size_t size) {
  std::string header;
  for (int i = 0; i < 4; ++i) header += static_cast<char>(size >> (8 * i) & 0xff);
  return header;
}

/// What is received when these bytes are all that arrives.
std::optional<Value> received(const std::string& bytes) {
  auto [ours, theirs] = sys::socket_pair();
  EXPECT_EQ(::send(theirs.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  theirs.reset();
  return receive_frame(ours.get());
}

TEST(Frames, ArriveAsTheyWereSent) {
  auto [ours, theirs] = sys::socket_pair();
  send_frame(theirs.get(), Value{{"op", "list"}, {"names", {"a", "\xc3\xa4"}}, {"patience", 1.5}});
  send_frame(theirs.get(), Value{{"x", nullptr}});
  theirs.reset();
  EXPECT_EQ(receive_frame(ours.get()), (Value{{"op", "list"}, {"names", {"a", "\xc3\xa4"}}, {"patience", 1.5}}));
  EXPECT_EQ(receive_frame(ours.get()), (Value{{"x", nullptr}}));
  EXPECT_EQ(receive_frame(ours.get()), std::nullopt);
  ours.reset();
}

TEST(Frames, WhatIsNoneIsRefused) {
  const std::string good = header_of(2) + "{}";
  EXPECT_EQ(received(good), Value::object());
  EXPECT_EQ(received(""), std::nullopt);
  EXPECT_THROW(received(good.substr(0, 2)), StorageError);
  EXPECT_THROW(received(good.substr(0, 5)), StorageError);
  EXPECT_THROW(received(header_of(kLongestFrame + 1) + "{}"), StorageError);
  EXPECT_THROW(received(header_of(0xffffffff)), StorageError);
  EXPECT_THROW(received(header_of(0)), StorageError);
  EXPECT_THROW(received(header_of(2) + "[]"), StorageError);
  EXPECT_THROW(received(header_of(3) + "{\"\xff"), StorageError);
  const std::string deep = "{\"a\":" + std::string(50'000, '[') + std::string(50'000, ']') + "}";
  EXPECT_THROW(received(header_of(deep.size()) + deep), StorageError);
}

TEST(Frames, TheOtherEndMayBeGone) {
  auto [ours, theirs] = sys::socket_pair();
  theirs.reset();
  EXPECT_THROW(send_frame(ours.get(), Value::object()), StorageError);
}

TEST(Frames, NoBytesDoHarm) {
  std::mt19937 random(17);
  const std::string text = R"({"op":"put_files","at":"s3://b/x","names":["a","b"],"patience":3.0})";
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = header_of(text.size()) + text;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      if (random() % 3 == 0)
        bytes.resize(at + 1);
      else
        bytes[at] = static_cast<char>(random());
    }
    try {
      received(bytes);
    } catch (const StorageError&) {  // anything else fails the test
    }
  }
}

}  // namespace
}  // namespace lockstep::store
