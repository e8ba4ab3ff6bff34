#include "sys/directory_lock.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "sys/files.h"

namespace lockstep::sys {
namespace {

/// is_held() takes a shared lock for a moment. After this many tries that met only such locks, take() gives up.
constexpr int kTries = 1000;
/// After these, take() sleeps between tries: on a busy machine the other process may not run for a while.
constexpr int kQuickTries = 100;

}  // namespace

std::optional<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory) {
  Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", directory, errno);
  return lock(std::move(opened));
}

std::optional<DirectoryLock> DirectoryLock::take(int directory) {
  // Open the directory again: a copy of the descriptor would share a lock that it already holds.
  Descriptor opened(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", "/proc/self/fd/" + std::to_string(directory), errno);
  return lock(std::move(opened));
}

std::optional<DirectoryLock> DirectoryLock::lock(Descriptor opened) {
  for (int i = 0; i < kTries; ++i) {
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return DirectoryLock(std::move(opened));
    if (::flock(opened.get(), LOCK_SH | LOCK_NB) != 0) return std::nullopt;
    // Nobody holds it: another process was in is_held().
    ::flock(opened.get(), LOCK_UN);
    if (i < kQuickTries)
      ::sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return std::nullopt;
}

std::optional<bool> DirectoryLock::is_held(const std::filesystem::path& directory) {
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", directory, errno);
  if (::flock(opened.get(), LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
}

DirectoryLock::~DirectoryLock() {
  // Closing is not enough: a fork of this process may still have the descriptor.
  if (directory_) ::flock(directory_.get(), LOCK_UN);
}

}  // namespace lockstep::sys
