#include "sys/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lockstep::sys {
namespace {

TEST(SharedMemory, GrowsAndKeepsItsContents) {
  SharedMemory memory;
  memory.grow(10);
  std::memset(memory.data(), 'a', 10);
  const std::size_t first = memory.size();
  memory.grow(5);
  EXPECT_EQ(memory.size(), first);
  memory.grow(std::size_t{3} << 20);
  EXPECT_GE(memory.size(), std::size_t{3} << 20);
  EXPECT_EQ(std::memcmp(memory.data(), "aaaaaaaaaa", 10), 0);
  memory.data()[memory.size() - 1] = std::byte{7};
}

TEST(SharedMemory, IsSeenThroughItsDescriptorAsLongAsItIsMapped) {
  SharedMemory memory;
  memory.grow(100);
  const Mapping seen = map_shared(memory.fd(), 100);
  std::memset(memory.data(), 'b', 100);
  memory.reset();
  EXPECT_TRUE(std::ranges::all_of(seen.bytes(), [](std::byte each) { return each == std::byte{'b'}; }));
}

TEST(SharedMemory, WhatIsTooSmallOrCouldShrinkIsNotMapped) {
  SharedMemory memory;
  memory.grow(100);
  EXPECT_THROW(map_shared(memory.fd(), memory.size() + 1), StorageError);
  EXPECT_NE(::ftruncate(memory.fd(), 0), 0) << "it cannot shrink";
  const Descriptor loose(::memfd_create("loose", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(loose.get(), 100), 0);
  EXPECT_THROW(map_shared(loose.get(), 100), StorageError);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THROW(map_shared(null.get(), 0), StorageError);
}

TEST(SharedMemory, TooLittleMemoryIsAnErrorThatSaysSo) {
  SharedMemory memory;
  memory.grow(100);
  const std::size_t before = memory.size();
  try {
    memory.grow(std::size_t{1} << 46);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("too little memory"), std::string::npos) << error.what();
  }
  EXPECT_EQ(memory.size(), before);
  memory.data()[0] = std::byte{1};
}

TEST(SharedMemory, ALimitOfTheProcessIsAnotherError) {
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 1 << 20;
  ::setrlimit(RLIMIT_FSIZE, &small);
  SharedMemory memory;
  EXPECT_THROW(memory.grow(std::size_t{2} << 20), SharedMemoryRefused);
  ::setrlimit(RLIMIT_FSIZE, &old);
  memory.grow(std::size_t{2} << 20);
}

TEST(SharedMemory, KnowsWhatIsAvailable) { EXPECT_GT(available_memory(), std::uint64_t{1} << 20); }

}  // namespace
}  // namespace lockstep::sys
