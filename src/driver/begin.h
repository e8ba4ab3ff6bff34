#pragma once

#include <lockstep/checkpoint.h>

#include <optional>

#include "driver/run_plan.h"
#include "driver/run_record.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// What all workers of an attempt are told when they begin, but for where they resume and what is a rank's own.
wire::Begin begin_of_all(const RunPlan& plan, const RunRecord& record, int attempt);

/// Where a worker finds `checkpoint`: its directory, or its files when it is in memory. Empty for none.
wire::CheckpointGiven given_of(const std::optional<Checkpoint>& checkpoint);

}  // namespace lockstep::driver
