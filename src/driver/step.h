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
/// Events that carry the number of another attempt are refused: they change nothing and nothing is done.
std::pair<RunState, std::vector<Action>> step(RunState state, Event event, Instant now);

/// When `step` wants a Tick at the latest; nothing while no deadline runs.
std::optional<Instant> next_deadline(const RunState& state);

}  // namespace lockstep::driver
