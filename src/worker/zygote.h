#pragma once

#include <string>
#include <vector>

namespace lockstep::worker {

/// What a worker finds when it is born.
struct Birth {
  int socket = -1;   ///< frames to and from the agent
  int payload = -1;  ///< what all ranks get
  int stacks = -1;   ///< a place for stacks
};

/// Makes this process the one that workers are forked from, with its libraries loaded and nothing run: serves the agent
/// at the other end of `agent` (the protocol is in src/agent/fork_server.h) until that closes it, and ends then with
/// all workers. Returns in every worker, which has standard output and error of its own and leads a session.
///
/// A process with threads cannot be forked safely: its workers execute the program anew, with `arguments` and with the
/// three descriptors in LOCKSTEP_WORKER_FD, LOCKSTEP_PAYLOAD_FD and LOCKSTEP_STACKS_FD.
Birth serve_forks(int agent, const std::vector<std::string>& arguments);

}  // namespace lockstep::worker
