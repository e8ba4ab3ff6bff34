#include "collective/region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "ranks.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CoreSet cores(std::initializer_list<int> numbers) {
  CoreSet set{};
  for (const int number : numbers) set[number / 64] |= std::uint64_t{1} << (number % 64);
  return set;
}

TEST(CoresSuffice, WhenEachRankCanHaveOne) {
  EXPECT_TRUE(cores_suffice({cores({0, 1}), cores({0, 1})}));
  EXPECT_FALSE(cores_suffice({cores({0, 1}), cores({0, 1}), cores({0, 1})}));
  EXPECT_TRUE(cores_suffice({cores({0, 1}), cores({0})}));
  EXPECT_TRUE(cores_suffice({cores({0, 1, 2}), cores({0, 1}), cores({0})}));
  EXPECT_FALSE(cores_suffice({cores({5}), cores({5})}));
  EXPECT_FALSE(cores_suffice({cores({})}));
  EXPECT_TRUE(cores_suffice({cores({1000}), cores({1001})}));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// `address` with its `index`-th word replaced.
std::string with_word(const std::string& address, int index, const std::string& word) {
  std::istringstream in(address);
  std::string result, next;
  for (int i = 0; in >> next; ++i) result += (i == 0 ? "" : " ") + (i == index ? word : next);
  return result;
}

TEST(Region, IsSharedByAddress) {
  const auto region = Region::create({2, 8192, 4096});
  const auto same = Region::open(region->address(), 2);
  region->slot(1, 1)[8191] = std::byte{5};
  EXPECT_EQ(same->slot(1, 1 + kSlots)[8191], std::byte{5});
  region->set_fault({FaultKind::died, 1, 0});
  region->set_fault({FaultKind::timed_out, 0, 1});
  EXPECT_EQ(same->fault()->kind, FaultKind::died);
  EXPECT_EQ(same->fault()->culprit, 1);
}

TEST(Region, ItsSizeIsSealed) {
  const auto region = Region::create({2, 8192, 4096});
  std::istringstream words(region->address());
  std::string where;
  int pid = 0, fd = -1;
  words >> where >> pid >> fd;
  EXPECT_NE(::ftruncate(fd, 4096), 0);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Region, LeavesNoNameBehind) {
  const auto names = [] {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) found.push_back(entry.path());
    return found;
  };
  const auto before = names();
  const auto region = Region::create({2, 8192, 4096});
  EXPECT_EQ(names(), before);
}

TEST(Region, WhatIsNotOfThisGroupIsRefused) {
  const auto region = Region::create({2, 8192, 4096});
  const std::string address = region->address();
  const auto refusal = [&](int word, const std::string& text) {
    return error_of([&] { Region::open(with_word(address, word, text), 2); });
  };
  EXPECT_THAT(refusal(0, "another-boot/1"), AllOf(HasSubstr("different machines"), HasSubstr("use Gloo")));
  EXPECT_THAT(refusal(1, "999999999"), HasSubstr("cannot open /proc/999999999/fd/"));
  EXPECT_THAT(refusal(2, "0"), HasSubstr("/fd/0"));
  EXPECT_THAT(refusal(3, "0123"), HasSubstr("not the memory of this group"));
  EXPECT_THAT(refusal(4, "3"), HasSubstr("expects 2 ranks and rank 0 3"));
  EXPECT_THAT(error_of([&] { Region::open("nonsense", 2); }), HasSubstr("not an address"));
}

TEST(Region, ShapesThatCannotBeAreRefused) {
  EXPECT_THROW(Region::create({0, 8192, 4096}), ConfigError);
  EXPECT_THROW(Region::create({kMaxRanks + 1, 1 << 20, 4096}), ConfigError);
  EXPECT_THROW(Region::create({2, 100, 4096}), ConfigError);
  EXPECT_THROW(Region::create({2, 4100, 4096}), ConfigError);
  EXPECT_THROW(Region::create({100, 4096, 4096}), ConfigError);
  EXPECT_THROW(Region::create({2, 4096, 5000}), ConfigError);
}

}  // namespace
}  // namespace lockstep::collective
