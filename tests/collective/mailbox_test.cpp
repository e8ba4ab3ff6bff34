#include "collective/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <future>

#include "ranks.h"
#include "reference.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

CommunicatorOptions small_rings() {
  CommunicatorOptions options = quick_options();
  options.ring_bytes = 4096;
  return options;
}

std::vector<std::string> run(int world, const std::function<void(Communicator&)>& body) {
  return run_threads(world, small_rings(), body);
}

#define REQUIRE(condition) \
  if (!(condition)) throw InternalError(std::string("not so: " #condition ", rank ") + std::to_string(group.rank()))

/// A posted message and its end.
class Posted {
 public:
  Posted(Communicator& group, bool is_send, Bytes& data, int peer, std::int64_t tag,
         std::chrono::milliseconds timeout = 60s) {
    const Message message{data.data(), data.size(), peer, tag, timeout};
    const auto done = [promise = promise_](const std::exception_ptr& error, int source) {
      if (error)
        promise->set_exception(error);
      else
        promise->set_value(source);
    };
    if (is_send)
      group.mail().post_send(message, done);
    else
      group.mail().post_receive(message, done);
  }
  int wait() { return future_.get(); }

 private:
  std::shared_ptr<std::promise<int>> promise_ = std::make_shared<std::promise<int>>();
  std::future<int> future_ = promise_->get_future();
};

/// Posts a send and gives the text of its error. (The text, because the thread sanitizer does not see how threads share
/// an exception.)
std::future<std::string> error_of_send(Communicator& group, Bytes& data, int peer, std::int64_t tag,
                                       std::chrono::milliseconds timeout = 60s) {
  const auto promise = std::make_shared<std::promise<std::string>>();
  group.mail().post_send({data.data(), data.size(), peer, tag, timeout}, [promise](std::exception_ptr error, int) {
    try {
      if (error) std::rethrow_exception(std::move(error));
      promise->set_value("");
    } catch (const Error& failure) {
      promise->set_value(failure.what());
    }
  });
  return promise->get_future();
}

TEST(Mailbox, MessagesOfEverySizeArriveInOrder) {
  EXPECT_THAT(run(3,
                  [](Communicator& group) {
                    const std::vector<std::size_t> sizes{0, 1, 4095, 4096, 5, 100000, 0, 3};
                    const int next = (group.rank() + 1) % 3, previous = (group.rank() + 2) % 3;
                    for (std::size_t i = 0; i < sizes.size(); ++i) {
                      Bytes given = random_elements(sizes[i], DType::uint8, group.rank() * 10 + i);
                      Bytes taken(sizes[i]);
                      Posted sending(group, true, given, next, 0);
                      REQUIRE(group.receive(taken.data(), taken.size(), previous) == previous);
                      REQUIRE(taken == random_elements(sizes[i], DType::uint8, previous * 10 + i));
                      sending.wait();
                    }
                  }),
              Each(""));
}

TEST(Mailbox, ProcessesExchangeMessages) {
  Ranks ranks(2, small_rings(), [](Communicator& group) {
    Bytes data = random_elements(50000, DType::uint8, 1);
    Bytes taken(50000);
    for (int i = 0; i < 50; ++i) {
      if (group.rank() == 0) group.send(data.data(), data.size(), 1, i);
      group.receive(taken.data(), taken.size(), 1 - group.rank(), i);
      REQUIRE(taken == data);
      if (group.rank() == 1) group.send(data.data(), data.size(), 0, i);
    }
  });
  ranks.expect_success();
}

TEST(Mailbox, BothSidesMaySendFirst) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes given = random_elements(100000, DType::uint8, group.rank());
                    Bytes taken(given.size());
                    Posted sending(group, true, given, 1 - group.rank(), 7);
                    Posted receiving(group, false, taken, 1 - group.rank(), 7);
                    sending.wait();
                    receiving.wait();
                    REQUIRE(taken == random_elements(100000, DType::uint8, 1 - group.rank()));
                  }),
              Each(""));
}

TEST(Mailbox, TagsMayBeAskedForInAnyOrder) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes data(6000);
                    for (const std::int64_t tag : {1, 2, 3}) {
                      std::fill(data.begin(), data.end(), static_cast<std::byte>(tag));
                      if (group.rank() == 0) group.send(data.data(), data.size(), 1, tag);
                      if (group.rank() == 0) continue;
                      const std::int64_t wanted = 4 - tag;
                      group.receive(data.data(), data.size(), 0, wanted);
                      REQUIRE(data == Bytes(6000, static_cast<std::byte>(wanted)));
                    }
                  }),
              Each(""));
}

/// The first receive is answered last: the second must not wait behind it.
TEST(Mailbox, ReceivesDoNotWaitForEachOther) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes first(10), second(10);
                    if (group.rank() == 0) {
                      Posted late(group, false, first, 1, 1);
                      Posted early(group, false, second, 1, 2);
                      early.wait();
                      group.send(nullptr, 0, 1, 3);
                      late.wait();
                    } else {
                      group.send(second.data(), 10, 0, 2);
                      group.receive(nullptr, 0, 0, 3);
                      group.send(first.data(), 10, 0, 1);
                    }
                  }),
              Each(""));
}

TEST(Mailbox, WhoAsksWhileTheMessageIsArrivingGetsIt) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes large = random_elements(400000, DType::uint8, 3), small(1), taken(large.size());
                    if (group.rank() == 0) {
                      Posted sending(group, true, large, 1, 1);
                      Posted after(group, true, small, 1, 2);
                      sending.wait();
                      after.wait();
                      return;
                    }
                    // The first one makes the large message come, many rings long, with nobody to take it.
                    Posted later(group, false, small, 0, 2);
                    Posted now(group, false, taken, 0, 1);
                    now.wait();
                    later.wait();
                    REQUIRE(taken == large);
                  }),
              Each(""));
}

TEST(Mailbox, AnySourceTellsTheSender) {
  EXPECT_THAT(run(4,
                  [](Communicator& group) {
                    int value = group.rank();
                    if (group.rank() != 0) return group.send(&value, sizeof value, 0, 5);
                    std::vector<int> sources;
                    for (int i = 0; i < 3; ++i) {
                      sources.push_back(group.receive(&value, sizeof value, kAnySource, 5));
                      REQUIRE(value == sources.back());
                    }
                    std::sort(sources.begin(), sources.end());
                    REQUIRE(sources == (std::vector<int>{1, 2, 3}));
                  }),
              Each(""));
}

TEST(Mailbox, MailGoesOnDuringACollective) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes data(100000);
                    if (group.rank() == 0) {
                      Posted sending(group, true, data, 1, 0);
                      group.barrier();
                      sending.wait();
                    } else {
                      group.receive(data.data(), data.size(), 0);
                      group.barrier();
                    }
                  }),
              Each(""));
}

TEST(Mailbox, AMessageOfAnotherSizeIsAnErrorAndTheNextArrives) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    Bytes data(9000, std::byte{1}), next(3, std::byte{2}), taken(3);
                    if (group.rank() == 0) {
                      group.send(data.data(), data.size(), 1);
                      return group.send(next.data(), next.size(), 1);
                    }
                    EXPECT_THROW(group.receive(taken.data(), 3, 0), ConfigError);
                    group.receive(taken.data(), 3, 0);
                    REQUIRE(taken == next);
                  }),
              Each(""));
}

TEST(Mailbox, PeersThatCannotBeAreRefused) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    EXPECT_THROW(group.send(nullptr, 0, group.rank()), ConfigError);
                    EXPECT_THROW(group.send(nullptr, 0, kAnySource), ConfigError);
                    EXPECT_THROW(group.receive(nullptr, 0, 2), ConfigError);
                  }),
              Each(""));
}

TEST(Mailbox, WhatWasSentBeforeLeavingArrives) {
  const auto region = Region::create({2, 4096, 4096});
  auto one = std::async(std::launch::async, [&] { return std::make_unique<Communicator>(region, 1, small_rings()); });
  Communicator zero(region, 0, small_rings());
  int value = 42;
  one.get()->send(&value, sizeof value, 0);
  value = 0;
  EXPECT_EQ(zero.receive(&value, sizeof value, 1), 1);
  EXPECT_EQ(value, 42);
  const auto error = [&](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const EngineError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error([&] { zero.receive(&value, sizeof value, 1); }), HasSubstr("rank 1"));
  EXPECT_THAT(error([&] { zero.receive(&value, sizeof value, kAnySource); }), HasSubstr("left the group"));
  EXPECT_THAT(error([&] { zero.send(&value, sizeof value, 1); }), HasSubstr("left the group"));
}

TEST(Mailbox, ASilentPeerIsNamedAtTheTimeout) {
  const auto errors = run(2, [](Communicator& group) {
    if (group.rank() == 1) return group.barrier();
    group.set_timeout(100ms);
    int value = 0;
    group.receive(&value, sizeof value, 1);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("receive 1"), HasSubstr("nothing from rank 1 (pid ")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0 "), HasSubstr("gave up waiting for this rank")));
}

/// A short one behind a long one has a timeout of its own.
TEST(Mailbox, ASendThatIsHeldBackTimesOut) {
  const auto errors = run(2, [](Communicator& group) {
    if (group.rank() == 1) return group.barrier();
    Bytes large(100000), small(1);
    auto first = error_of_send(group, large, 1, 1);
    auto second = error_of_send(group, small, 1, 2, 50ms);
    EXPECT_THAT(second.get(), AllOf(HasSubstr("send 2"), HasSubstr("nothing from rank 1 (pid ")));
    EXPECT_THAT(first.get(), HasSubstr("gave up waiting for rank 1"));
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("gave up waiting for this rank"));
}

TEST(Mailbox, WhatACallbackThrowsHarmsNobody) {
  EXPECT_THAT(
      run(2,
          [](Communicator& group) {
            Bytes data(10);
            const int peer = 1 - group.rank();
            group.mail().post_receive({data.data(), 10, peer, 1, 60s},
                                      [](const std::exception_ptr&, int) { throw InternalError("not me"); });
            group.mail().post_receive({data.data(), 10, peer, 2, 60s}, [](const std::exception_ptr&, int) { throw 7; });
            Posted last(group, false, data, peer, 3);
            for (const std::int64_t tag : {1, 2, 3}) group.send(data.data(), 10, peer, tag);
            REQUIRE(last.wait() == peer);
            group.mail().post_send({data.data(), 10, peer, 4, 60s},
                                   [](const std::exception_ptr&, int) { throw InternalError("nor me"); });
            group.receive(data.data(), 10, peer, 4);
          }),
      Each(""));
}

/// Many rings long; the receiver takes its time, and its own message comes meanwhile.
TEST(Mailbox, WhoHasFinishedItsSendsMayLeave) {
  Ranks ranks(2, small_rings(), [](Communicator& group) {
    Bytes large = random_elements(200000, DType::uint8, 1), small = random_elements(3000, DType::uint8, 2);
    Bytes taken(large.size()), answer(small.size());
    if (group.rank() == 0) {
      Posted receiving(group, false, answer, 1, 3);
      group.mail().post_send({large.data(), large.size(), 1, 1, 60s}, nullptr);
      group.mail().post_send({small.data(), small.size(), 1, 2, 60s}, nullptr);
      group.mail().finish_sends(60s);
      REQUIRE(receiving.wait() == 1);
      REQUIRE(answer == small);
      return;
    }
    std::this_thread::sleep_for(30ms);
    group.send(small.data(), small.size(), 0, 3);
    group.receive(taken.data(), taken.size(), 0, 1);
    REQUIRE(taken == large);
    std::this_thread::sleep_for(100ms);  // rank 0 has left
    group.receive(answer.data(), answer.size(), 0, 2);
    REQUIRE(answer == small);
  });
  ranks.expect_success();
}

TEST(Mailbox, SendsAreNotWaitedForLongerThanAsked) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    group.mail().finish_sends(60s);  // there are none
                    Bytes data(100000), taken(data.size());
                    if (group.rank() == 0) {
                      Posted sending(group, true, data, 1, 0);
                      const Instant start = now();
                      group.mail().finish_sends(50ms);
                      REQUIRE(now() - start >= 50ms);
                      REQUIRE(now() - start < 10s);
                      group.barrier();
                      group.mail().finish_sends(60s);
                      sending.wait();
                    } else {
                      group.barrier();
                      group.receive(taken.data(), taken.size(), 0);
                    }
                  }),
              Each(""));
}

TEST(Mailbox, SendsThatFailAreNotWaitedFor) {
  const auto errors = run(2, [](Communicator& group) {
    group.barrier();
    if (group.rank() == 1) return group.abort();
    Bytes data(100000);
    auto sending = error_of_send(group, data, 1, 0);
    const Instant start = now();
    group.mail().finish_sends(60s);
    REQUIRE(now() - start < 30s);
    EXPECT_THAT(sending.get(), HasSubstr("rank 1"));
  });
  EXPECT_EQ(errors[1], "");
}

TEST(Mailbox, LeavingEndsWhatIsUnderWay) {
  EXPECT_THAT(run(2,
                  [](Communicator& group) {
                    group.barrier();
                    if (group.rank() == 1) return;
                    Bytes data(10);
                    auto own = Region::create({2, 4096, 4096});
                    auto peer = std::async(std::launch::async,
                                           [&] { return std::make_unique<Communicator>(own, 1, small_rings()); });
                    auto second = std::make_unique<Communicator>(own, 0, small_rings());
                    const auto other = peer.get();
                    Posted receiving(*second, false, data, 1, 0);
                    second.reset();
                    EXPECT_THROW(receiving.wait(), EngineError);
                  }),
              Each(""));
}

}  // namespace
}  // namespace lockstep::collective
