#pragma once

#include <string>
#include <vector>

namespace lockstep::worker {

/// The descriptors that a new worker inherits.
struct Birth {
  int socket = -1;   ///< frames to and from the agent
  int payload = -1;  ///< the payload of all ranks
  int stacks = -1;   ///< where stacks are written
};

/// Turns this process into the fork server of a C++ program. Serves the agent at the other end of `agent` (the protocol
/// is in src/agent/fork_server.h) until the agent closes it, then kills all workers and exits. Returns only in a forked
/// worker, which has its own standard output and error and leads a session.
///
/// A process with threads cannot be forked safely. If there are threads, each worker executes the program again, with
/// `arguments` and with the numbers of the three descriptors in LOCKSTEP_WORKER_FD, LOCKSTEP_PAYLOAD_FD and
/// LOCKSTEP_STACKS_FD.
Birth serve_forks(int agent, const std::vector<std::string>& arguments);

/// For a fork server whose agent is gone: kills what its workers have left behind, including daemons, wherever the
/// environment has the agent's mark. Other fork servers of the agent, which do the same, are spared.
void kill_leftovers();

}  // namespace lockstep::worker
