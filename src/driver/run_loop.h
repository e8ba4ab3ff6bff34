#pragma once

#include <lockstep/result.h>

#include <memory>

#include "driver/run_plan.h"

namespace lockstep::driver {

/// What a run came to, and the signal that ended it early (0: none).
struct RunOutcome {
  Result result;
  int signal = 0;
  bool agent_usable = true;   ///< the agent is idle and may serve another run
  std::vector<Bytes> values;  ///< by rank: what the functions returned (with keep_workers), pickled
};

/// Runs `plan` through the agent at the other end of `agent` (borrowed), to its end, in the calling thread. One loop
/// owns all state:
///
///     wait for the agent, a signal or a deadline -> make it an event -> step() -> do the actions
///
/// A failed or interrupted run is an outcome. Throws ConfigError or StorageError when the run directory cannot be made,
/// and EngineError when the agent cannot start the program; nothing runs then.
RunOutcome run(const RunPlan& plan, int agent);

}  // namespace lockstep::driver
