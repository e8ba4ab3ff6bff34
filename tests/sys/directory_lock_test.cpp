#include "sys/directory_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

namespace lockstep::sys {
namespace {

/// A directory of this test's process, and of its children.
class DirectoryLockTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(place); }
  void TearDown() override { std::filesystem::remove_all(place); }

  const std::filesystem::path place =
      std::filesystem::path(testing::TempDir()) / ("directory_lock_" + std::to_string(getpid()));
};

TEST_F(DirectoryLockTest, OneHasItAtATime) {
  auto first = DirectoryLock::take(place);
  ASSERT_TRUE(first);
  EXPECT_FALSE(DirectoryLock::take(place));
  auto moved = std::move(first);
  first.reset();
  EXPECT_FALSE(DirectoryLock::take(place));
  moved.reset();
  EXPECT_TRUE(DirectoryLock::take(place));
}

TEST_F(DirectoryLockTest, ADeadProcessHoldsNothing) {
  const pid_t child = fork();
  if (child == 0) {
    const auto held = DirectoryLock::take(place);
    _exit(held ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(DirectoryLock::take(place));
}

TEST_F(DirectoryLockTest, AForkDoesNotHoldItOn) {
  auto held = DirectoryLock::take(place);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  held.reset();
  EXPECT_TRUE(DirectoryLock::take(place));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(DirectoryLockTest, OfAnOpenDirectory) {
  const Descriptor open(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(DirectoryLock::is_held(place), false);
  auto held = DirectoryLock::take(open.get());
  ASSERT_TRUE(held);
  EXPECT_FALSE(DirectoryLock::take(open.get()));
  EXPECT_EQ(DirectoryLock::is_held(place), true);
  held.reset();
  EXPECT_EQ(DirectoryLock::is_held(place), false);
}

TEST_F(DirectoryLockTest, LookingDoesNotTakeIt) {
  std::atomic<bool> done = false;
  std::thread looks([&] {
    while (!done) EXPECT_TRUE(DirectoryLock::is_held(place).has_value());
  });
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(DirectoryLock::take(place));
  done = true;
  looks.join();
}

TEST_F(DirectoryLockTest, ThereMustBeADirectory) {
  EXPECT_THROW(DirectoryLock::take(place / "not-there"), StorageError);
}

}  // namespace
}  // namespace lockstep::sys
