#pragma once

#include <lockstep/error.h>

#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/state.h"

namespace lockstep::driver {

/// Whether a worker is gone or hangs; otherwise code of the user or a file has failed.
bool is_death(FailureKind kind);

/// The failure of a process that ended too early: by its exit code, by a signal (a native crash is named), or out of
/// memory.
Failure failure_of_exit(const WorkerExited& exited);

/// The failures of the silent ranks in `state.hung`, judged by the stacks of all ranks. The ranks that the others wait
/// for come first. A rank that waits in a collective is not a cause, unless all do.
std::vector<Failure> failures_of_silence(const RunState& state, Instant now);

/// The failure of a rank that never rejoined the others and was killed.
Failure failure_of_stuck(const RunState& state, int rank);

/// The failure of a worker that sent an invalid message.
Failure not_understood(const std::exception& error);

/// The run's error as text: the first failing rank with its traceback and last lines, then the others in groups.
std::string describe(const std::vector<Failure>& failures);

}  // namespace lockstep::driver
