#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::agent {

/// Counts processes that the kernel killed for lack of memory: in this process's control group if that is known (its
/// workers are in it too), otherwise on the whole machine.
class MemoryKills {
 public:
  MemoryKills() : MemoryKills("/proc", "/sys/fs/cgroup") {}
  /// For tests: other mount points of the two file systems.
  MemoryKills(const std::string& proc, const std::string& cgroup);

  /// Kills so far; 0 if unknown.
  std::uint64_t count() const;

 private:
  std::string file_;
};

}  // namespace lockstep::agent
