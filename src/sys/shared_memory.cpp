#include "sys/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/text.h"
#include "sys/node.h"

namespace lockstep::sys {
namespace {

/// Sizes are multiples of this, so that a checkpoint that grows a little seldom needs more.
constexpr std::size_t kUnit = std::size_t{256} << 10;

std::string size_text(std::size_t size) { return human_size(static_cast<double>(size)); }

[[noreturn]] void refuse(const char* what, std::size_t size, int error) {
  throw SharedMemoryRefused(std::string("[sys.shared_memory] ") + what + " of " + size_text(size) + ": " +
                            std::strerror(error));
}

[[noreturn]] void lack(std::size_t size, std::uint64_t available) {
  throw StorageError("[checkpoint] there is too little memory to take the checkpoint: it needs " + size_text(size) +
                     " of shared memory more, and " + size_text(available) +
                     " are available; use fewer workers on this machine, or a machine with more memory");
}

/// The kernel ends a process that makes a file larger than its limit, and memfd counts as one.
void check_limit(std::size_t size) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) refuse("memory", size, EFBIG);
}

std::uint64_t number_in(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  return in >> number ? number : std::numeric_limits<std::uint64_t>::max();
}

/// The value after `name` in a file of lines "name value".
std::uint64_t field_of(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  for (std::uint64_t value = 0; in >> word >> value;)
    if (word == name) return value;
  return 0;
}

/// What the process's cgroup still allows; files that are only cached do not count as used.
std::uint64_t left_in_cgroup() {
  constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  std::ifstream in("/proc/self/cgroup");
  std::uint64_t left = kNoLimit;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      const std::string directory = "/sys/fs/cgroup" + path;
      const std::uint64_t most = number_in(directory + "/memory.max");
      const std::uint64_t used = number_in(directory + "/memory.current");
      if (most != kNoLimit && used != kNoLimit) {
        const std::uint64_t cached = field_of(directory + "/memory.stat", "inactive_file");
        left = std::min(left, most + std::min(used, cached) > used ? most + std::min(used, cached) - used : 0);
      }
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return left;
}

}  // namespace

std::uint64_t available_memory() {
  const std::uint64_t machine = memory().available;
  return std::min(machine != 0 ? machine : std::numeric_limits<std::uint64_t>::max(), left_in_cgroup());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void SharedMemory::reset() {
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), size_);
  size_ = 0;
  fd_.reset();
}

void SharedMemory::grow(std::size_t size) {
  size = (size + kUnit - 1) / kUnit * kUnit;
  if (size <= size_) return;
  const std::size_t more = size - size_;
  check_limit(size);
  if (const std::uint64_t available = available_memory(); available < more) lack(more, available);
  if (!fd_) {
    fd_ = Descriptor(::memfd_create("lockstep-checkpoint", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd_) refuse("memory", size, errno);
    if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) refuse("memory", size, errno);
  }
  // The pages are made here: later a lack of memory would kill the process.
  if (::fallocate(fd_.get(), 0, static_cast<off_t>(size_), static_cast<off_t>(more)) != 0) {
    if (errno == ENOMEM || errno == ENOSPC) lack(more, available_memory());
    refuse("memory", size, errno);
  }
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), 0);
  if (mapped == MAP_FAILED) refuse("a mapping", size, errno);
  // A child that the function forks has no use for it.
  ::madvise(mapped, size, MADV_DONTFORK);
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = static_cast<std::byte*>(mapped);
  size_ = size;
}

Mapping map_shared(int fd, std::uint64_t least) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) < least)
    throw StorageError("[sys.shared_memory] a descriptor is not of shared memory of " + size_text(least));
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    throw StorageError("[sys.shared_memory] shared memory that could shrink is not read");
  if (least == 0) return {};
  void* mapped = ::mmap(nullptr, least, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) refuse("a mapping", least, errno);
  return {mapped, least};
}

}  // namespace lockstep::sys
