#include "driver/begin.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lockstep::driver {
namespace {

/// A checkpoint in memory, its manifest too.
std::vector<std::pair<std::string, Bytes>> files_of(const Checkpoint& checkpoint) {
  std::vector<std::pair<std::string, Bytes>> files;
  for (const auto& name : checkpoint.files()) files.emplace_back(name, checkpoint.read(name));
  if (const auto manifest = checkpoint.metadata()) {
    const std::string text = to_pretty_json(*manifest);
    files.emplace_back("manifest.json", Bytes(text.begin(), text.end()));
  }
  return files;
}

}  // namespace

wire::Begin begin_of_all(const RunPlan& plan, const RunRecord& record, int attempt) {
  const auto& checkpoint = plan.options.run.checkpoint;
  wire::Begin begin;
  begin.attempt = attempt;
  begin.world_size = begin.local_world_size = plan.options.scaling.num_workers;
  begin.experiment_name = record.name;
  begin.trial_name = record.trainer + "_" + record.trial_id;
  begin.trial_id = record.trial_id;
  begin.run_dir = plan.directory();
  begin.function = plan.function;
  begin.config = plan.options.config;
  begin.python_path = plan.python_path;
  begin.argv = plan.argv;
  begin.cwd = plan.program.cwd;
  begin.env = plan.program.env;
  begin.extra = plan.extra;
  begin.keep_all_ranks = checkpoint.keep_all_ranks;
  begin.score_attribute = checkpoint.score_attribute;
  begin.keep = plan.keep_workers;
  begin.heartbeat_interval = std::min(1.0, plan.options.run.heartbeat_timeout.count() / 4);
  begin.max_report_size = plan.options.run.max_report_size;
  if (checkpoint.num_to_keep != 0) begin.storage = plan.directory();
  return begin;
}

wire::CheckpointGiven given_of(const std::optional<Checkpoint>& checkpoint) {
  wire::CheckpointGiven given;
  if (checkpoint && checkpoint->path())
    given.path = *checkpoint->path();
  else if (checkpoint)
    given.files = files_of(*checkpoint);
  return given;
}

}  // namespace lockstep::driver
