#include <lockstep/config.h>
#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/ids.h"
#include "base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& value, const std::string& may_be) {
  throw ConfigError("[config] " + field + " is " + value + "; it may be " + may_be);
}

void validate(const ScalingConfig& scaling) {
  if (scaling.num_workers < 1) refuse("scaling.num_workers", std::to_string(scaling.num_workers), "1 or more");
  constexpr std::array<std::string_view, 4> kStrategies{"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};
  if (std::ranges::find(kStrategies, scaling.placement_strategy) == kStrategies.end())
    refuse("scaling.placement_strategy", in_quotes(scaling.placement_strategy),
           "PACK, SPREAD, STRICT_PACK or STRICT_SPREAD");
  if (scaling.placement_strategy == "STRICT_SPREAD" && scaling.num_workers > 1)
    refuse("scaling.placement_strategy", "STRICT_SPREAD",
           "PACK, SPREAD or STRICT_PACK on one machine: there is one node for " + std::to_string(scaling.num_workers) +
               " workers");
  for (const auto& [name, amount] : scaling.resources_per_worker)
    if (!(amount >= 0) || std::isinf(amount))
      refuse("scaling.resources_per_worker[" + in_quotes(name) + "]", std::to_string(amount), "0 or more");
  const auto gpu = scaling.resources_per_worker.find("GPU");
  if (gpu != scaling.resources_per_worker.end() && gpu->second > 1 && gpu->second != std::floor(gpu->second))
    refuse("scaling.resources_per_worker[\"GPU\"]", std::to_string(gpu->second), "a whole number, or less than 1");
  if (gpu != scaling.resources_per_worker.end() && gpu->second > 0 && !scaling.use_gpu)
    refuse("scaling.use_gpu", "false", "true where resources_per_worker asks for GPUs");
}

void validate(const CheckpointConfig& checkpoint) {
  if (checkpoint.num_to_keep && *checkpoint.num_to_keep < 0)
    refuse("run.checkpoint.num_to_keep", std::to_string(*checkpoint.num_to_keep),
           "nothing (all), 0 (in memory only) or more");
  if (checkpoint.score_order != "max" && checkpoint.score_order != "min")
    refuse("run.checkpoint.score_order", in_quotes(checkpoint.score_order), "\"max\" or \"min\"");
}

}  // namespace

void validate(const TrainerOptions& options) {
  validate(options.scaling);
  const RunConfig& run = options.run;
  if (!run.name.empty()) check_run_name(run.name);
  if (run.failure.max_failures < -1)
    refuse("run.failure.max_failures", std::to_string(run.failure.max_failures), "-1 (for ever), 0 or more");
  if (run.hang_timeout && !(run.hang_timeout->count() > 0))
    refuse("run.hang_timeout", std::to_string(run.hang_timeout->count()), "more than 0 seconds");
  if (!(run.heartbeat_timeout.count() > 0))
    refuse("run.heartbeat_timeout", std::to_string(run.heartbeat_timeout.count()), "more than 0 seconds");
  if (run.log_to_console != "rank0" && run.log_to_console != "all" && run.log_to_console != "none")
    refuse("run.log_to_console", in_quotes(run.log_to_console), "\"rank0\", \"all\" or \"none\"");
  if (run.max_report_size < 1 || run.max_report_size > 1 << 30)
    refuse("run.max_report_size", std::to_string(run.max_report_size), "1 to 2**30 bytes");
  for (const auto& [name, value] : run.stop)
    if (name.empty() || std::isnan(value))
      refuse("run.stop[" + in_quotes(name) + "]", std::to_string(value), "a number");
  validate(run.checkpoint);
}

}  // namespace lockstep
