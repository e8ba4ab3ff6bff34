#pragma once

#include <lockstep/session.h>

#include <functional>

#include "tune/function_session.h"
#include "tune/trial_loop.h"

namespace lockstep::tune {

/// Runs trials of a function in the loop's threads. `loop` is borrowed.
TrialLoop::RunTrial function_trials(TrialLoop& loop, std::function<Value(Session&)> function, FunctionTrial trial);

}  // namespace lockstep::tune
