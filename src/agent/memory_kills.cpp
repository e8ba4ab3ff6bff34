#include "agent/memory_kills.h"

#include <fstream>
#include <sstream>

namespace lockstep::agent {
namespace {

/// The number after "oom_kill " at a line's start.
std::optional<std::uint64_t> read_count(const std::string& file) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("oom_kill ")) return std::stoull(line.substr(9));
  return std::nullopt;
}

}  // namespace

MemoryKills::MemoryKills(const std::string& proc, const std::string& cgroup) : file_(proc + "/vmstat") {
  std::ifstream in(proc + "/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "0::/path" in version 2, "4:memory:/path" in version 1.
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(std::getline(parts, number, ':'), controllers, ':');
    std::getline(parts, path);
    const bool second = number == "0" && controllers.empty();
    if (!second && controllers != "memory") continue;
    const std::string file =
        second ? cgroup + path + "/memory.events" : cgroup + "/memory" + path + "/memory.oom_control";
    if (read_count(file)) {
      file_ = file;
      return;
    }
  }
}

std::uint64_t MemoryKills::count() const { return read_count(file_).value_or(0); }

}  // namespace lockstep::agent
