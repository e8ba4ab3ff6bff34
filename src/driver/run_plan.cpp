#include "driver/run_plan.h"

namespace lockstep::driver {

Policy RunPlan::policy() const {
  Policy policy;
  policy.max_failures = options.run.failure.max_failures;
  policy.count_node_failures = options.run.failure.count_node_failures;
  policy.workers = options.scaling.num_workers;
  policy.resize_interval = options.scaling.resize_interval;
  policy.only_deaths = group.only_deaths;
  policy.keep_all_ranks = options.run.checkpoint.keep_all_ranks;
  policy.heartbeat_timeout = options.run.heartbeat_timeout;
  policy.hang_timeout = options.run.hang_timeout;
  policy.keep_workers = group.keep_workers;
  policy.replace_workers = backend.replaces_workers();
  policy.regroups = backend.service != nullptr;
  policy.hooks = wiring.hooks != nullptr;
  return policy;
}

Value RunPlan::settings() const { return store::to_value({options.scaling, options.run, backend.needs}); }

}  // namespace lockstep::driver
