#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::agent {

/// Counts processes that the kernel killed for want of memory: in this process's control group where that is told (its
/// workers are in it too), else on the whole machine.
class MemoryKills {
 public:
  MemoryKills() : MemoryKills("/proc", "/sys/fs/cgroup") {}
  /// For tests: other places of the two file systems.
  MemoryKills(const std::string& proc, const std::string& cgroup);

  /// Kills so far; 0 when nothing tells.
  std::uint64_t count() const;

 private:
  std::string file_;
};

}  // namespace lockstep::agent
