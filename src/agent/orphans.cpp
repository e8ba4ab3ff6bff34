#include "agent/orphans.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "sys/process.h"

namespace lockstep::agent {

void Orphans::sweep(const std::vector<int>& servers) {
  // Repeat until nothing is reaped: children of a reaped process have become ours meanwhile.
  for (bool reaped = true; reaped;) {
    reaped = false;
    std::map<int, Instant> left;
    for (const int child : sys::children(::getpid())) {
      if (std::ranges::find(servers, child) != servers.end()) continue;
      for (const int pid : sys::descendants(child)) ::kill(pid, SIGKILL);
      ::kill(child, SIGKILL);
      if (::waitpid(child, nullptr, WNOHANG) == child) {
        reaped = true;
        continue;
      }
      const auto known = found_.find(child);
      left[child] = known != found_.end() ? known->second : now();
    }
    found_ = std::move(left);
  }
}

bool Orphans::left_since(Instant since) const {
  return std::ranges::any_of(found_, [&](const auto& orphan) { return orphan.second >= since; });
}

}  // namespace lockstep::agent
