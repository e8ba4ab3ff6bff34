#pragma once

#include <utility>
#include <vector>

#include "driver/actions.h"
#include "driver/events.h"
#include "driver/state.h"

namespace lockstep::driver {

/// Makes all decisions of the driver: returns the state after `event` and the actions to carry out. Pure: uses no
/// clock, process or file.
///
///     idle ── ready ──► placing ── placed ──► attempting ── all finished, all gone ──► ended (finished)
///                          ▲                    │      └─ silent rank ──► diagnosing ─┐
///                          └─ failures left ─┐  └─ any failure ──► saving ──► stopping ◄┘
///                                            └────────────────────────────── all gone ──► or ended (failed)
///     attempting ── another size: all ranks end after a checkpoint ── all gone ──► placing again
///     placing ── cannot start ──► pausing ──► placing again, or ended (failed)
///     any ── Ctrl-C ──► interrupted ── all gone ──► ended (interrupted)
///     any ── stop requested ──► saving ──► stopping ── all gone ──► ended (stopped)
///
/// An attempt has the size of its placement. It is over when all its nodes have reported its end or are lost. The
/// results of actions are events too; they are handled before all others.
///
/// With `replace_workers`, the death of a rank need not fail the attempt. The rank is restarted alone if failures are
/// left (each death counts as one), another rank lives, none has returned, and none waits in a barrier or broadcast,
/// which could not be restarted. The new worker has no state, and its reports and meetings continue the numbers of the
/// others. How the ranks connect again is up to them.
///
/// Events of another attempt are dropped.
std::pair<RunState, std::vector<Action>> step(RunState state, Event event, Instant now);

/// When `step` needs a Tick at the latest; nothing if there is no deadline.
std::optional<Instant> next_deadline(const RunState& state);

}  // namespace lockstep::driver
