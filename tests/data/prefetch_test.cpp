#include "data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace lockstep::data {
namespace {

using Numbers = Prefetcher<int>;

/// Work for 0 ... count - 1; each calls `with`.
std::function<std::optional<Numbers::Work>()> counting(
    int count, std::function<void(int)> with = [](int) {}) {
  return [next = 0, count, with]() mutable -> std::optional<Numbers::Work> {
    if (next == count) return std::nullopt;
    return [number = next++, with] {
      with(number);
      return number;
    };
  };
}

TEST(Prefetcher, GivesResultsInOrder) {
  for (const int threads : {1, 2, 5}) {
    Numbers numbers(counting(500), 3);
    numbers.start(threads);
    for (int n = 0; n < 500; ++n) ASSERT_EQ(numbers.take(), n);
    EXPECT_FALSE(numbers.take());
    EXPECT_FALSE(numbers.take());
  }
}

TEST(Prefetcher, NeverWorksFurtherAheadThanAllowed) {
  std::atomic<int> made = 0;
  Numbers numbers(counting(100, [&](int) { ++made; }), 4);
  numbers.start(8);
  for (int n = 0; n < 100; ++n) {
    ASSERT_EQ(numbers.take(), n);
    EXPECT_LE(made, n + 1 + 4);
  }
}

TEST(Prefetcher, RethrowsInTurnAndBeginsNothingMore) {
  std::atomic<int> most = 0;
  Numbers numbers(counting(1000,
                           [&](int number) {
                             if (number == 5) throw std::runtime_error("five");
                             int seen = most;
                             while (seen < number && !most.compare_exchange_weak(seen, number)) {
                             }
                           }),
                  3);
  numbers.start(2);
  for (int n = 0; n < 5; ++n) ASSERT_EQ(numbers.take(), n);
  EXPECT_THROW(numbers.take(), std::runtime_error);
  numbers.stop();
  EXPECT_LE(most, 5 + 3);
}

TEST(Prefetcher, RethrowsWhatTheWorkListThrows) {
  Numbers numbers([]() -> std::optional<Numbers::Work> { throw std::runtime_error("no list"); }, 2);
  numbers.start(2);
  EXPECT_THROW(numbers.take(), std::runtime_error);
}

TEST(Prefetcher, StopsWhenAbandoned) {
  std::atomic<int> running = 0, begun = 0;
  {
    Numbers numbers(counting(1'000'000,
                             [&](int) {
                               ++running;
                               ++begun;
                               --running;
                             }),
                    4);
    numbers.start(3);
    EXPECT_EQ(numbers.take(), 0);
  }
  EXPECT_EQ(running, 0);
  EXPECT_LE(begun, 5);
}

TEST(Prefetcher, WaitHasATimeout) {
  std::mutex held;
  std::unique_lock lock(held);
  Numbers numbers(counting(1, [&](int) { const std::lock_guard waits(held); }), 1);
  numbers.start(1);
  EXPECT_FALSE(numbers.wait(std::chrono::milliseconds(1)));
  lock.unlock();
  EXPECT_EQ(numbers.take(), 0);
  EXPECT_TRUE(numbers.wait(std::chrono::hours(1)));
}

}  // namespace
}  // namespace lockstep::data
