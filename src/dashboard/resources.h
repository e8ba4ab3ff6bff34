#pragma once

#include <string>

#include "store/run_view.h"

namespace lockstep::dashboard {

/// What the processes of a run's workers use now, if the run is driven on this machine: {"seconds", "workers": [{"pid",
/// "rank", "state", "cpu_seconds", "memory", "threads"}]}, and "node": {"cores", "memory", "available"}. `rank` is null
/// unless it is known, which it is of the process that made rank 0's last report. A process that drives several runs
/// has the workers of all of them. Processes of other users are left out.
std::string resources_json(const store::RunView& view);

}  // namespace lockstep::dashboard
