#pragma once

#include <utility>
#include <vector>

#include "driver/state.h"

namespace lockstep::driver {

/// The driver's every decision: what the run is after `event`, and what is to be done now. Pure: no clock, no process,
/// no file.
///
///     idle ── ready ──► attempting ── all finished, all gone ──► ended (finished)
///                        │      └─ silent rank ──► diagnosing ─┐
///                        └─ any failure ──────────► stopping ◄─┘ ── all gone ──► attempting again, or ended (failed)
///     any ── Ctrl-C ──► interrupted ── all gone ──► ended (interrupted)
///
/// With `replace_workers` a death need not be a failure of the attempt: the rank is started again alone, as long as
/// failures are left (each death takes one), another rank lives, none has returned, and none waits in a barrier or
/// broadcast, which could not be begun anew. The new worker's reports and meetings are numbered on from where the
/// others are, and of its own it has nothing: how the ranks find together again is their business.
///
/// Events that carry the number of another attempt are refused: they change nothing and nothing is done.
std::pair<RunState, std::vector<Action>> step(RunState state, Event event, Instant now);

/// When `step` wants a Tick at the latest; nothing while no deadline runs.
std::optional<Instant> next_deadline(const RunState& state);

}  // namespace lockstep::driver
