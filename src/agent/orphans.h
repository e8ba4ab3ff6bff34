#pragma once

#include <map>
#include <vector>

#include "base/clock.h"

namespace lockstep::agent {

/// Processes that dead workers left behind. A worker is the subreaper of everything it starts, and the agent is the
/// subreaper of the workers. So a child of the agent that is not a fork server was started by a worker that has ended.
/// It is killed at once, with all its descendants.
class Orphans {
 public:
  /// Kills and reaps them. `servers` are the pids of the live fork servers. Call it when a worker or a child has ended.
  void sweep(const std::vector<int>& servers);
  /// Whether an orphan that was found at `since` or later is left; a worker that ended then may have started it. Nobody
  /// waits for older ones: a killed process can take long to vanish if it waits for a device.
  bool left_since(Instant since) const;

 private:
  std::map<int, Instant> found_;  ///< when each pid was found
};

}  // namespace lockstep::agent
