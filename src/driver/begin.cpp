#include "driver/begin.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lockstep::driver {
namespace {

/// The files of a checkpoint in memory, including its manifest.
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

wire::Begin begin_of_all(const RunPlan& plan, const store::RunRecord& record, int attempt) {
  const auto& checkpoint = plan.options.run.checkpoint;
  wire::Begin begin;
  begin.attempt = attempt;
  begin.experiment_name = record.name;
  begin.trial_name = record.trainer + "_" + record.trial_id;
  begin.trial_id = record.trial_id;
  begin.run_dir = plan.directory();
  begin.function = plan.function.name;
  begin.config = plan.options.config;
  begin.python_path = plan.program.python_path;
  begin.argv = plan.program.argv;
  begin.cwd = plan.program.fork_server.cwd;
  begin.env = plan.program.fork_server.env;
  begin.keep_all_ranks = checkpoint.keep_all_ranks;
  begin.score_attribute = checkpoint.score_attribute;
  begin.keep = plan.group.keep_workers;
  begin.calls = plan.wiring.hooks != nullptr;
  begin.heartbeat_interval = std::min(1.0, plan.options.run.heartbeat_timeout.count() / 4);
  begin.max_report_size = plan.options.run.max_report_size;
  begin.skip_when_busy = checkpoint.when_busy == "skip";
  if (checkpoint.num_to_keep != 0) begin.storage = plan.directory();
  return begin;
}

std::vector<wire::PeerNode> peers_of(const Placement& placement) {
  std::vector<wire::PeerNode> peers;
  int node = -1;
  for (const RankPlace& place : placement.ranks) {
    if (peers.empty() || place.node != node) peers.push_back({place.address, 0});
    node = place.node;
    ++peers.back().ranks;
  }
  return peers;
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
