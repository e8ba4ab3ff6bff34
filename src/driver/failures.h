#pragma once

#include <lockstep/error.h>

#include <string>
#include <vector>

#include "driver/state.h"

namespace lockstep::driver {

/// What a process that ended too early tells: by code, by signal (a native crash says so), or for want of memory.
Failure failure_of_exit(const WorkerExited& exited);

/// What the silence of `state.hung` comes to, by the stacks of all ranks: the ranks that the others wait for come
/// first. Who waits in a collective is no cause, unless all do.
std::vector<Failure> failures_of_silence(const RunState& state, Instant now);

/// The failure of a rank that the others waited for in vain, and that we ended.
Failure failure_of_stuck(const RunState& state, int rank);

/// The run's error as people read it: the first failing rank first with its traceback and last lines, the others
/// grouped.
std::string describe(const std::vector<Failure>& failures);

}  // namespace lockstep::driver
