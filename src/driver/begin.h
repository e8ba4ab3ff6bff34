#pragma once

#include <lockstep/checkpoint.h>

#include <optional>
#include <vector>

#include "driver/placement.h"
#include "driver/run_plan.h"
#include "store/run_record.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The part of Begin that is the same for all workers of an attempt, without its nodes and the checkpoint to resume
/// from.
wire::Begin begin_of_all(const RunPlan& plan, const store::RunRecord& record, int attempt);

/// The nodes of the attempt, as Begin tells each worker.
std::vector<wire::PeerNode> peers_of(const Placement& placement);

/// How a worker gets `checkpoint`: its directory, or its files if it is in memory. Empty if there is none.
wire::CheckpointGiven given_of(const std::optional<Checkpoint>& checkpoint);

}  // namespace lockstep::driver
