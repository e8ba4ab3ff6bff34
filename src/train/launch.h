#pragma once

#include <lockstep/config.h>

#include <filesystem>

#include "driver/run_loop.h"
#include "driver/run_plan.h"

namespace lockstep::train {

/// Completes a plan (name, directory, what each rank gets), takes the process's warm agent or starts one, and runs the
/// plan. The agent stays for the next run of this process and ends with it. One run at a time: another waits for it.
/// Throws ConfigError before anything is started; see driver::run for the rest.
driver::RunOutcome launch(driver::RunPlan plan);

/// Whether `path` holds a run.
bool can_restore(const std::filesystem::path& path);

/// The options with which the run at `path` was started, as far as run.json and params.json tell. Throws ConfigError
/// when there is no run.
void read_settings(const std::filesystem::path& path, TrainerOptions& options);

}  // namespace lockstep::train
