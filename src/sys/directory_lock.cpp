#include "sys/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "sys/files.h"

namespace lockstep::sys {

std::optional<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory) {
  Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_file_error("open the directory", directory, errno);
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return DirectoryLock(std::move(opened));
}

DirectoryLock::~DirectoryLock() {
  // Closing is not enough: a fork of this process may still have the descriptor.
  if (directory_) ::flock(directory_.get(), LOCK_UN);
}

}  // namespace lockstep::sys
