#pragma once

#include <cstdint>
#include <vector>

#include "train/agent_slot.h"
#include "train/directory_claim.h"

namespace lockstep::train {

/// A run that is ready to begin: its name, directory and options are final.
struct PreparedRun {
  driver::RunPlan plan;
  bool made_directory = false;          ///< to claim a default name
  DirectoryClaim claim{};               ///< keeps other runs of this process away
  std::vector<std::uint64_t> within{};  ///< the runs whose callbacks started it (DrivenRun)
};

/// Fills in the plan and makes its directory. Throws ConfigError if it can never run like this or if another run of
/// this process has its directory, and StorageError if its directory cannot be made.
PreparedRun prepare(driver::RunPlan plan);

/// A run that does not begin leaves no directory.
void abandon(const PreparedRun& prepared);

/// Runs it in the calling thread, on `agent`, or on the process's agent if that is null. Runs of several threads, and
/// runs that a callback starts, run side by side. A run waits if others hold the resources that it needs. See
/// driver::run for the rest.
driver::RunOutcome run(PreparedRun prepared, AgentSlot* agent = nullptr);

}  // namespace lockstep::train
