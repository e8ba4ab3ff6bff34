#include "data/shared_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

namespace lockstep::data {
namespace {

using Look = SharedCache::Look;
using std::chrono::milliseconds;

std::string fresh_name() {
  static int count = 0;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

std::filesystem::path file_of(const std::string& name) {
  return "/dev/shm/lockstep-data-" + std::to_string(::geteuid()) + "-" + name;
}

void put(SharedCache& cache, std::uint64_t key, const std::string& text) {
  SharedCache::Pinned pinned;
  ASSERT_EQ(cache.look(key, pinned), Look::claimed);
  const auto room = cache.room(key, text.size(), true);
  ASSERT_EQ(room.size(), text.size());
  std::memcpy(room.data(), text.data(), text.size());
  cache.publish(key);
}

std::string text_of(const SharedCache::Pinned& pinned) {
  return {reinterpret_cast<const char*>(pinned.bytes.data()), pinned.bytes.size()};
}

TEST(SharedCache, OneMakesWhatTheOthersGet) {
  const auto name = fresh_name();
  const auto mine = SharedCache::join(name, 2, 1 << 20), other = SharedCache::join(name, 2, 1 << 20);
  ASSERT_TRUE(mine && other);
  SharedCache::Pinned pinned;
  ASSERT_EQ(mine->look(7, pinned), Look::claimed);
  EXPECT_EQ(other->look(7, pinned), Look::busy);
  const auto room = mine->room(7, 5, false);
  std::memcpy(room.data(), "hello", 5);
  mine->publish(7);
  ASSERT_EQ(other->look(7, pinned), Look::ready);
  EXPECT_EQ(text_of(pinned), "hello");
}

TEST(SharedCache, RanksCountTheirTurnsAlike) {
  const auto name = fresh_name();
  const auto mine = SharedCache::join(name, 2, 4096), other = SharedCache::join(name, 2, 4096);
  for (const auto& cache : {mine, other}) {
    EXPECT_EQ(cache->turn(1), 0U);
    EXPECT_EQ(cache->turn(1), 1U);
    EXPECT_EQ(cache->turn(2), 0U);
  }
}

TEST(SharedCache, ItsFileGoesWhenAllHaveJoined) {
  const auto name = fresh_name();
  const auto mine = SharedCache::join(name, 2, 4096);
  EXPECT_TRUE(std::filesystem::exists(file_of(name)));
  const auto other = SharedCache::join(name, 2, 4096);
  EXPECT_FALSE(std::filesystem::exists(file_of(name)));
}

TEST(SharedCache, LeftoversGoWithTheNextOne) {
  const auto name = fresh_name();
  { const auto alone = SharedCache::join(name, 2, 4096); }
  ASSERT_TRUE(std::filesystem::exists(file_of(name)));
  const auto next = SharedCache::join(fresh_name(), 1, 4096);
  EXPECT_FALSE(std::filesystem::exists(file_of(name)));
}

TEST(SharedCache, AFileThatOthersMayOpenIsNotUsed) {
  const auto name = fresh_name();
  const auto keep = SharedCache::join(name, 2, 4096);
  ASSERT_EQ(::chmod(file_of(name).c_str(), 0644), 0);
  EXPECT_EQ(SharedCache::join(name, 2, 4096), nullptr);
  std::filesystem::remove(file_of(name));
}

TEST(SharedCache, AnEntryGoesWhenAllAreDoneWithItAndNobodyHoldsIt) {
  const auto cache = SharedCache::join(fresh_name(), 1, 1 << 20);
  put(*cache, 1, "a");
  SharedCache::Pinned pinned, other;
  ASSERT_EQ(cache->look(1, pinned), Look::ready);
  cache->done(1);
  ASSERT_EQ(cache->look(1, other), Look::ready);
  pinned = {};
  EXPECT_EQ(text_of(other), "a");
  other = {};
  EXPECT_EQ(cache->look(1, pinned), Look::claimed);
}

TEST(SharedCache, TheOldestGoesIfThereIsNoRoomButNeverOneInUse) {
  const auto cache = SharedCache::join(fresh_name(), 2, 3 * 4096);
  for (const std::uint64_t key : {1, 2, 3}) put(*cache, key, std::string(4096, 'x'));
  SharedCache::Pinned held, looked;
  ASSERT_EQ(cache->look(1, held), Look::ready);
  EXPECT_FALSE(cache->fits(1));
  ASSERT_EQ(cache->look(4, looked), Look::claimed);
  EXPECT_TRUE(cache->room(4, 1, false).empty());
  EXPECT_FALSE(cache->room(4, 1, true).empty());
  cache->publish(4);
  EXPECT_EQ(cache->look(1, looked), Look::ready);
  EXPECT_EQ(cache->look(2, looked), Look::claimed);
  EXPECT_EQ(cache->look(3, looked), Look::ready);
}

TEST(SharedCache, WhatDoesNotFitIsNotShared) {
  const auto cache = SharedCache::join(fresh_name(), 2, 4096);
  SharedCache::Pinned pinned;
  ASSERT_EQ(cache->look(1, pinned), Look::claimed);
  EXPECT_TRUE(cache->room(1, 4097, true).empty());
  cache->abandon(1);
  EXPECT_EQ(cache->look(1, pinned), Look::claimed);
}

TEST(SharedCache, RoomThatIsHeldIsNotGivenToOthers) {
  const auto cache = SharedCache::join(fresh_name(), 1, 2 * 4096);
  SharedCache::Pinned pinned;
  ASSERT_EQ(cache->look(1, pinned), Look::claimed);
  const auto first = cache->room(1, 4096, false);
  auto hold = cache->hold(1);
  const auto second = cache->room(1, 4096, false);
  ASSERT_FALSE(second.empty());
  EXPECT_NE(first.data(), second.data());
  EXPECT_FALSE(cache->fits(1));
  cache->publish(1);
  ASSERT_EQ(cache->look(1, pinned), Look::ready);
  EXPECT_EQ(pinned.bytes.data(), second.data());
  hold.reset();
  EXPECT_TRUE(cache->fits(4096));

  SharedCache::Pinned other;
  ASSERT_EQ(cache->look(2, other), Look::claimed);
  ASSERT_FALSE(cache->room(2, 4096, false).empty());
  hold = cache->hold(2);
  cache->abandon(2);
  EXPECT_FALSE(cache->fits(1));
  EXPECT_EQ(cache->look(2, other), Look::claimed) << "nobody finds it";
  EXPECT_TRUE(cache->room(2, 1, true).empty());
  hold.reset();
  EXPECT_FALSE(cache->room(2, 4096, true).empty());
}

TEST(SharedCache, WaitingEndsWithAChange) {
  const auto cache = SharedCache::join(fresh_name(), 1, 4096);
  SharedCache::Pinned pinned;
  ASSERT_EQ(cache->look(1, pinned), Look::claimed);
  const auto seen = cache->changes();
  std::jthread later([&] { cache->abandon(1); });
  cache->wait(seen, std::chrono::hours(1));
  EXPECT_NE(cache->changes(), seen);
}

TEST(SharedCache, ClaimsOfTheDeadAreDropped) {
  const auto name = fresh_name();
  const auto cache = SharedCache::join(name, 2, 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    SharedCache::Pinned pinned;
    const auto own = SharedCache::join(name, 2, 4096);
    ::_exit(own && own->look(1, pinned) == Look::claimed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  SharedCache::Pinned pinned;
  ASSERT_EQ(cache->look(1, pinned), Look::busy);
  cache->wait(cache->changes(), milliseconds(1));
  EXPECT_EQ(cache->look(1, pinned), Look::claimed);
}

TEST(SharedCache, AChildOfForkCanDropItAndFindsItFull) {
  auto cache = SharedCache::join(fresh_name(), 2, 1 << 20);
  put(*cache, 1, "a");
  SharedCache::Pinned pinned, other;
  ASSERT_EQ(cache->look(1, pinned), Look::ready);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_full = cache->look(2, other) == Look::full;
    cache->wait(cache->changes(), milliseconds(1));
    pinned = {};
    cache.reset();
    ::_exit(is_full ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(pinned), "a");
}

}  // namespace
}  // namespace lockstep::data
