#pragma once

#include <lockstep/result.h>

#include <functional>
#include <vector>

#include "driver/clock.h"
#include "driver/run_plan.h"

namespace lockstep::driver {

/// The outcome of a run, and the signal that ended it early (0: none).
struct RunOutcome {
  Result result;
  int signal = 0;
  bool agent_usable = true;   ///< the agent is idle and may serve another run
  std::vector<Bytes> values;  ///< by rank: what the functions returned (with keep_workers), pickled
};

/// The connection to the head agent.
struct AgentAccess {
  int socket = -1;  ///< borrowed
  int run = 0;      ///< the id of the run in messages (wire::Envelope)
  /// Returns a connection (borrowed) to another head agent after this one was lost, or throws EngineError. If it is
  /// empty, the loss ends the run.
  std::function<int()> reconnect{};
};

/// Runs `plan` to its end, in the calling thread. One loop owns all state:
///
///     wait for the agent, a signal, a request or a deadline -> make it an event -> step() -> do the actions
///     (RunEffects), whose results are events as well
///
/// Hooks run between two rounds; their calls continue the loop until all answers are there.
///
/// A failed, interrupted or stopped run is an outcome. Throws ConfigError or StorageError if the run directory cannot
/// be made, and EngineError if the agent cannot start the program; then nothing runs.
RunOutcome run(const RunPlan& plan, const AgentAccess& agent);
/// The same with another clock.
RunOutcome run(const RunPlan& plan, const AgentAccess& agent, Clock& clock);

}  // namespace lockstep::driver
