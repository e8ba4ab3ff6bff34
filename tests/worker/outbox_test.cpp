#include "worker/outbox.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>

#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::worker {
namespace {

class OutboxTest : public testing::Test {
 protected:
  OutboxTest() {
    auto [mine, theirs] = sys::socket_pair();
    channel.emplace(std::move(mine));
    peer.emplace(std::move(theirs));
    outbox.emplace(
        *channel, Seconds{60}, [] { return wire::encode(wire::Heartbeat{7}); }, [this] { lost = true; });
  }

  wire::WorkerToDriver next() {
    const auto frame = peer->receive(now() + 10s);
    if (!frame) throw std::runtime_error("nothing came");
    return wire::decode<wire::WorkerToDriver>(*frame);
  }

  std::optional<wire::Channel> channel, peer;
  std::optional<Outbox> outbox;
  std::atomic<bool> lost = false;
};

wire::Report report(int index) {
  wire::Report made;
  made.index = index;
  made.metrics = wire::encode_value({{"i", index}});
  return made;
}

TEST_F(OutboxTest, BeatsFirstOfAll) {
  const auto first = next();
  EXPECT_EQ(std::get<wire::Heartbeat>(first).progress, 7);
}

TEST_F(OutboxTest, KeepsTheOrderAndLosesNothing) {
  constexpr int kCount = 20'000;
  std::thread writer([&] {
    for (int i = 0; i < kCount; ++i) {
      outbox->add(report(i));
      if (i % 1000 == 999) outbox->add(wire::encode(wire::CheckpointWritten{i, "x", {}, {}, {}}));
    }
    outbox->flush();
  });
  int expected = 0, checkpoints = 0;
  while (expected < kCount || checkpoints < kCount / 1000) {
    auto message = next();
    if (auto* reports = std::get_if<wire::Reports>(&message)) {
      for (const auto& each : reports->reports) ASSERT_EQ(each.index, expected++);
    }
    if (auto* written = std::get_if<wire::CheckpointWritten>(&message)) {
      ASSERT_EQ(written->report, expected - 1);
      ++checkpoints;
    }
  }
  writer.join();
}

TEST_F(OutboxTest, AFullOutboxMakesReportersWaitUntilThePeerReads) {
  std::atomic<int> added = 0;
  constexpr int kCount = 200'000;
  std::thread writer([&] {
    for (int i = 0; i < kCount; ++i, ++added) outbox->add(report(i));
    outbox->flush();
  });
  // Nobody reads: the writer stops somewhere below the end, and stays there.
  int before = -1;
  for (int same = 0; same < 5;) {
    std::this_thread::sleep_for(20ms);
    same = added == before ? same + 1 : 0;
    before = added;
  }
  EXPECT_LT(added, kCount);
  int got = 0;
  while (got < kCount) {
    auto message = next();
    if (auto* reports = std::get_if<wire::Reports>(&message)) got += static_cast<int>(reports->reports.size());
  }
  writer.join();
  EXPECT_EQ(got, kCount);
}

TEST_F(OutboxTest, ALostPeerIsToldOnceAndNobodyHangs) {
  next();
  peer.reset();
  for (int i = 0; i < 100'000 && !lost; ++i) outbox->add(report(i));
  outbox->flush();
  EXPECT_TRUE(lost);
}

}  // namespace
}  // namespace lockstep::worker
