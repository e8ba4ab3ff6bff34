#pragma once

#include <optional>
#include <vector>

#include "driver/state.h"

namespace lockstep::driver {

/// Whether a rank's function runs, as far as we know.
bool is_active(const RunState& state, int rank);

/// The reports whose checkpoints a rank has announced and not written.
std::vector<int> unwritten(const RunState& state, int rank);
/// Whether a rank can have reported a checkpoint that counts and is not written. One whose heart does not beat writes
/// nothing.
bool may_write(const RunState& state, int rank);
/// Whether a rank that is not settled is known to write a checkpoint that can still be committed.
bool writes_what_counts(const RunState& state);

/// The first report after which every rank can end; nothing as long as not all have told.
std::optional<int> last_report(const RunState& state);
/// Whether the only ranks that are not through with a run that ends early are those that do not report as the others
/// do: one of them would never come to its last report, and may wait for others that have ended.
bool waits_for_laggards(const RunState& state);

}  // namespace lockstep::driver
