#pragma once

#include <lockstep/error.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "sys/descriptor.h"
#include "sys/files.h"

namespace lockstep::sys {

/// A limit of this process (ulimit, descriptors) or its system does not allow shared memory of the size.
class SharedMemoryRefused : public StorageError {
  using StorageError::StorageError;
};

/// Memory without a name that another process can map through its descriptor (memfd). All its pages are present: using
/// them later can neither fail nor wait for the kernel. Not thread-safe.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory() { reset(); }

  /// Makes it at least this large; it never shrinks, and its address may change. Throws StorageError if the machine has
  /// too little memory, and SharedMemoryRefused; the memory is then as before.
  void grow(std::size_t size);
  /// Frees the memory; another process that has mapped it keeps it.
  void reset();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Maps the memory of another process read-only. Throws StorageError unless it has at least `least` bytes and cannot
/// shrink, so that reading them is safe.
Mapping map_shared(int fd, std::uint64_t least);

/// What this process can still allocate, in bytes: what the machine has available, or less if a cgroup limits it.
std::uint64_t available_memory();

}  // namespace lockstep::sys
