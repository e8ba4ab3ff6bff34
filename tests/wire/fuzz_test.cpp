#include <gtest/gtest.h>

#include <random>

#include "samples.h"
#include "wire/channel.h"

namespace lockstep::wire {
namespace {

constexpr int kRounds = 20'000;

/// Anything but WireError escapes and fails the test; memory errors are for the sanitizers.
template <class F>
bool understands(F&& decode_it) {
  try {
    decode_it();
    return true;
  } catch (const WireError&) {
    return false;
  }
}

int decode_all_ways(const Bytes& bytes) {
  return understands([&] { decode_addressed<DriverToAgent>(bytes); }) +
         understands([&] { decode_addressed<AgentToDriver>(bytes); }) +
         understands([&] { decode<DriverToWorker>(bytes); }) + understands([&] { decode<WorkerToDriver>(bytes); }) +
         understands([&] { encode_value(decode_value(bytes)); }) +
         understands([&] { from_value<Begin>(decode_value(bytes)); });
}

Bytes mutated(Bytes bytes, const std::vector<Bytes>& others, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(9),
                     static_cast<std::uint8_t>(random()));
        break;
      case 4:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), at + 1 + below(9))));
        break;
      case 5: {
        const Bytes& other = others[below(others.size())];
        const std::size_t from = below(other.size());
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), other.begin() + static_cast<std::ptrdiff_t>(from),
                     other.end());
        break;
      }
    }
  }
  return bytes;
}

TEST(Fuzz, MutatedMessagesAreUnderstoodOrRefused) {
  std::mt19937 random(12345);
  const auto samples = sample_messages();
  int understood = 0;
  for (int round = 0; round < kRounds; ++round)
    understood += decode_all_ways(mutated(samples[static_cast<std::size_t>(round) % samples.size()], samples, random));
  // The mutations are mild enough that some messages stay whole: both ways out are exercised.
  EXPECT_GT(understood, kRounds / 20);
  EXPECT_LT(understood, 3 * kRounds);
}

TEST(Fuzz, RandomBytesAreUnderstoodOrRefused) {
  std::mt19937 random(54321);
  int understood = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes(random() % 200);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    understood += decode_all_ways(bytes);
  }
  EXPECT_LT(understood, kRounds);
}

TEST(Fuzz, AnyStreamIsCutIntoFramesOrRefused) {
  std::mt19937 random(777);
  for (int round = 0; round < kRounds; ++round) {
    FrameReader reader;
    std::size_t fed = 0, got = 0;
    understands([&] {
      for (int piece = 0; piece < 4; ++piece) {
        Bytes bytes(random() % 64);
        for (auto& byte : bytes) byte = random() % 2 == 0 ? 0 : static_cast<std::uint8_t>(random());
        reader.feed(bytes);
        fed += bytes.size();
        while (const auto frame = reader.next()) got += kFrameHeader + frame->size();
      }
    });
    ASSERT_EQ(fed, got + reader.pending());
  }
}

}  // namespace
}  // namespace lockstep::wire
