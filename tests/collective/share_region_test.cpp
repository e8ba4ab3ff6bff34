#include "collective/share_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "ranks.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// "cannot share: why", or "wrong: why".
std::string outcome(const std::function<void()>& call) {
  try {
    call();
  } catch (const CannotShareMemory& error) {
    return std::string("cannot share: ") + error.what();
  } catch (const ConfigError& error) {
    return std::string("wrong: ") + error.what();
  }
  return "";
}

std::string join_outcome(KeyValueStore& store, int rank, int world,
                         const CommunicatorOptions& options = quick_options()) {
  return outcome([&] { Communicator::join(store, rank, world, options); });
}

void limit(int resource, rlim_t value) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limits);
  limits.rlim_cur = value;
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

/// No room for what is large.
void limit_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit(RLIMIT_AS, pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{64} << 20));
}

CommunicatorOptions large_options() {
  CommunicatorOptions options = quick_options();
  options.slot_bytes = std::size_t{1} << 28;
  return options;
}

/// A store that gives this rank something else than `region`.
class OtherRegion : public KeyValueStore {
 public:
  OtherRegion(KeyValueStore& store, std::function<std::string(const std::string&)> change)
      : store_(store), change_(std::move(change)) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const std::string value = store_.get(key, timeout);
    return key == "region" ? change_(value) : value;
  }

 private:
  KeyValueStore& store_;
  std::function<std::string(const std::string&)> change_;
};

std::string elsewhere(const std::string& address) { return "elsewhere/1" + address.substr(address.find(' ')); }

TEST(ShareRegion, WhereOneCannotNobodyDoes) {
  Ranks ranks(3, [](KeyValueStore& store, int rank) {
    OtherRegion machine(store, [&](const std::string& address) { return rank == 1 ? elsewhere(address) : address; });
    EXPECT_THAT(join_outcome(machine, rank, 3), AllOf(HasSubstr("cannot share"), HasSubstr("rank 1 cannot join"),
                                                      HasSubstr("different machines"), HasSubstr("use Gloo")));
  });
  ranks.expect_success();
}

/// Memory that cannot be mapped, on any rank, is told to all at once.
TEST(ShareRegion, WhereOneHasNoMemoryNobodyShares) {
  for (const int poor : {0, 1, 2}) {
    Ranks ranks(3, [&](KeyValueStore& store, int rank) {
      if (rank == poor) limit_memory();
      EXPECT_THAT(join_outcome(store, rank, 3, large_options()), AllOf(HasSubstr("cannot share"), HasSubstr("map")));
    });
    ranks.expect_success();
  }
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizer's checks of types need a descriptor themselves
TEST(ShareRegion, WhereOneHasNoDescriptorsNobodyShares) {
  for (const int poor : {0, 1}) {
    Ranks ranks(2, [&](KeyValueStore& store, int rank) {
      if (rank == poor) limit(RLIMIT_NOFILE, 3);
      EXPECT_THAT(join_outcome(store, rank, 2), HasSubstr("cannot share"));
    });
    ranks.expect_success();
  }
}
#endif

TEST(ShareRegion, WhereFilesMustBeSmallNobodyShares) {
  Ranks ranks(2, [](KeyValueStore& store, int rank) {
    if (rank == 0) limit(RLIMIT_FSIZE, 1 << 20);
    EXPECT_THAT(join_outcome(store, rank, 2), AllOf(HasSubstr("cannot share"), HasSubstr("File too large")));
  });
  ranks.expect_success();
}

/// Which is no reason to go on with something else: that would wait for ranks that never come.
TEST(ShareRegion, WorldSizesThatDifferAreWrongOnAllRanks) {
  const auto check = [](const std::vector<int>& worlds) {
    Ranks ranks(static_cast<int>(worlds.size()), [&](KeyValueStore& store, int rank) {
      EXPECT_THAT(join_outcome(store, rank, worlds[rank]),
                  AllOf(HasSubstr("wrong"), HasSubstr("expects"), Not(HasSubstr("cannot share"))));
    });
    ranks.expect_success();
  };
  check({3, 2});     // nobody is rank 2
  check({2, 3, 3});  // rank 0 does not know of rank 2
  check({3, 3, 4});
}

TEST(ShareRegion, WhatIsWrongOutweighsWhatCannotBe) {
  Ranks ranks(4, [](KeyValueStore& store, int rank) {
    OtherRegion machine(
        store, [&](const std::string& address) { return rank == 1 || rank == 2 ? elsewhere(address) : address; });
    EXPECT_THAT(join_outcome(machine, rank, rank == 2 ? 5 : 4), AllOf(HasSubstr("wrong"), HasSubstr("expects 5")));
  });
  ranks.expect_success();
}

TEST(ShareRegion, ARankThatCannotBeIsWrongOnAllRanks) {
  for (const int bad : {-1, 3, 7}) {
    for (const int missing : {0, 1, 2}) {
      Ranks ranks(3, [&](KeyValueStore& store, int process) {
        const int rank = process == missing ? bad : process;
        EXPECT_THAT(join_outcome(store, rank, 3),
                    AllOf(HasSubstr("wrong"), HasSubstr("rank " + std::to_string(bad) + " in a group of 3")));
      });
      ranks.expect_success();
    }
  }
}

/// A store has exceptions of its own.
TEST(ShareRegion, WhatAStoreThrowsEndsItForAll) {
  for (const int broken : {0, 1}) {
    Ranks ranks(3, [&](KeyValueStore& store, int rank) {
      class Broken : public OtherRegion {
       public:
        using OtherRegion::OtherRegion;
        std::string get(const std::string&, std::chrono::milliseconds) override { throw std::range_error("no store"); }
      } no_store(store, nullptr);
      if (rank == broken)
        EXPECT_THROW(join_outcome(no_store, rank, 3), std::range_error);
      else
        EXPECT_THAT(join_outcome(store, rank, 3), AllOf(HasSubstr("wrong"), HasSubstr("no store")));
    });
    ranks.expect_success();
  }
}

}  // namespace
}  // namespace lockstep::collective
