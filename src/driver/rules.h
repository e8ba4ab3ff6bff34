#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/state.h"

namespace lockstep::driver {

/// "rank 3", "ranks 0, 2 and 3".
std::string ranks_text(const std::vector<int>& ranks);

/// Whether a rank's function is known to run.
bool is_active(const RunState& state, int rank);
/// Whether a rank waits for others, or for the driver: then they, not it, are checked for progress.
bool waits(const RunState& state, int rank);

/// The reports whose checkpoints a rank has announced but not written.
std::vector<int> unwritten(const RunState& state, int rank);
/// A checkpoint's position in a data set counts what all ranks have read up to its report. Whether they have: a rank
/// has made as many reports as rank 0, or has come to the same barrier. Ranks that report less often are not asked
/// again.
bool in_step(const RunState& state, int report);
/// Whether a rank may have reported a checkpoint that counts and is not yet written. A rank without a heartbeat writes
/// nothing.
bool may_write(const RunState& state, int rank);
/// Whether an unsettled rank is known to be writing a checkpoint that can still be committed.
bool writes_what_counts(const RunState& state);

/// The first report after which every rank can end; nothing until all have answered.
std::optional<int> last_report(const RunState& state);
/// Whether a rank has not made the last report, and its function has not returned.
bool may_lag(const RunState& state, int rank);
/// Whether only ranks that report less often than the others are left in a run that ends early. Such a rank might never
/// reach its last report, and may wait for ranks that have ended.
bool waits_for_laggards(const RunState& state);

}  // namespace lockstep::driver
