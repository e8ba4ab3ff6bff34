#include "sys/directory_lock.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::sys {
namespace {

const std::filesystem::path& place() {
  static const std::filesystem::path path = testing::TempDir();
  return path;
}

TEST(DirectoryLock, OneHasItAtATime) {
  auto first = DirectoryLock::take(place());
  ASSERT_TRUE(first);
  EXPECT_FALSE(DirectoryLock::take(place()));
  auto moved = std::move(first);
  first.reset();
  EXPECT_FALSE(DirectoryLock::take(place()));
  moved.reset();
  EXPECT_TRUE(DirectoryLock::take(place()));
}

TEST(DirectoryLock, ADeadProcessHoldsNothing) {
  const pid_t child = fork();
  if (child == 0) {
    const auto held = DirectoryLock::take(place());
    _exit(held ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(DirectoryLock::take(place()));
}

TEST(DirectoryLock, AForkDoesNotHoldItOn) {
  auto held = DirectoryLock::take(place());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  held.reset();
  EXPECT_TRUE(DirectoryLock::take(place()));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(DirectoryLock, ThereMustBeADirectory) { EXPECT_THROW(DirectoryLock::take(place() / "not-there"), StorageError); }

}  // namespace
}  // namespace lockstep::sys
