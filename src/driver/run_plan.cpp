#include "driver/run_plan.h"

namespace lockstep::driver {

std::optional<RendezvousOptions> RunPlan::rendezvous_options() const {
  auto filled = rendezvous;
  if (filled && filled->hosts.empty())
    filled->hosts.assign(static_cast<std::size_t>(options.scaling.num_workers), "localhost");
  return filled;
}

Policy RunPlan::policy() const {
  Policy policy;
  policy.world_size = options.scaling.num_workers;
  policy.max_failures = options.run.failure.max_failures;
  policy.keep_all_ranks = options.run.checkpoint.keep_all_ranks;
  policy.heartbeat_timeout = options.run.heartbeat_timeout;
  policy.hang_timeout = options.run.hang_timeout;
  policy.keep_workers = keep_workers;
  policy.replace_workers = replace_workers;
  return policy;
}

Value RunPlan::settings() const {
  const auto& [name, storage, failure, checkpoint, callbacks, verbose, log_to_console, hang, heartbeat, max_report,
               stop] = options.run;
  Value settings = {{"num_workers", options.scaling.num_workers},
                    {"use_gpu", options.scaling.use_gpu},
                    {"resources_per_worker", options.scaling.resources_per_worker},
                    {"placement_strategy", options.scaling.placement_strategy},
                    {"max_failures", failure.max_failures},
                    {"hang_timeout", hang ? Value(hang->count()) : Value(nullptr)},
                    {"heartbeat_timeout", heartbeat.count()},
                    {"max_report_size", max_report},
                    {"num_to_keep", checkpoint.num_to_keep ? Value(*checkpoint.num_to_keep) : Value(nullptr)},
                    {"checkpoint_score_attribute", checkpoint.score_attribute},
                    {"checkpoint_score_order", checkpoint.score_order},
                    {"keep_all_ranks", checkpoint.keep_all_ranks},
                    {"verbose", verbose},
                    {"log_to_console", log_to_console}};
  if (!stop.empty()) settings["stop"] = stop;
  if (rendezvous) settings["rendezvous"] = {{"hosts", rendezvous->hosts}};
  if (rendezvous && rendezvous->min_workers > 0) settings["rendezvous"]["min_workers"] = rendezvous->min_workers;
  if (!backend.is_null()) settings["backend"] = backend;
  if (replace_workers) settings["replace_workers"] = true;
  return settings;
}

}  // namespace lockstep::driver
