#include "sys/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "sys/files.h"

namespace lockstep::sys {

std::optional<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory) {
  Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", directory, errno);
  return lock(std::move(opened));
}

std::optional<DirectoryLock> DirectoryLock::take(int directory) {
  // Opened anew: a copy of the descriptor would share a lock that it holds already.
  Descriptor opened(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", "/proc/self/fd/" + std::to_string(directory), errno);
  return lock(std::move(opened));
}

std::optional<DirectoryLock> DirectoryLock::lock(Descriptor opened) {
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return DirectoryLock(std::move(opened));
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
