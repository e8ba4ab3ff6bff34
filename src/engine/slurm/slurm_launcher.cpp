#include "engine/slurm/slurm_launcher.h"

#include <lockstep/error.h>

#include <algorithm>
#include <exception>
#include <sstream>

#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/own_command.h"
#include "sys/node.h"

namespace lockstep::engine::slurm {
namespace {

/// Agents end by themselves when their connections do; then srun does.
constexpr Seconds kEndWithin{3.0};

LaunchNodes::Node launched_node(const JobNode& node) { return {node.name, node.cpus}; }

/// The value of a setting in what `scontrol show config` prints.
std::string setting(const std::string& config, const std::string& name) {
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, equals, value;
    if (words >> key >> equals && key == name) return std::getline(words >> std::ws, value) ? value : "";
  }
  return "";
}

}  // namespace

SlurmLauncher::~SlurmLauncher() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

LaunchNodes SlurmLauncher::nodes() {
  const auto id = options_.env.find("SLURM_JOB_ID");
  if (id == options_.env.end())
    throw ConfigError(
        "[engine.slurm] this is not inside an allocation: SLURM_JOB_ID is not set. Submit the script: "
        "lockstep submit slurm -N 4 train.py, or sbatch -N 4 --wrap " +
        in_quotes(own_command()) + ", or start it inside salloc -N 4");
  if (const std::string problem = many_tasks_problem(options_.env, own_command()); !problem.empty())
    throw ConfigError(problem);
  tools_.job = id->second;
  tools_.step = "lockstep-" + random_hex(16);
  tools_.env = environment_for_clients(options_.env);
  const std::string config = tools_.run({"scontrol", "show", "config"});
  const std::string plugins = setting(config, "TaskPlugin");
  tools_.binds_cpus = plugins.find("affinity") != std::string::npos || plugins.find("cgroup") != std::string::npos;

  const Job job = tools_.show(tools_.job);
  const std::string head = head_of(job);
  const auto most = static_cast<std::size_t>(options_.nodes.value_or(static_cast<int>(job.nodes.size())));
  if (most < 1 || most > job.nodes.size())
    throw ConfigError("[engine.slurm] nodes is " + std::to_string(*options_.nodes) + ", but the job has " +
                      std::to_string(job.nodes.size()));
  LaunchNodes result;
  result.head_works = options_.head_works.value_or(!head.empty());
  const bool head_is_one = result.head_works && !head.empty();
  for (const JobNode& node : job.nodes) {
    nodes_[node.name] = node;
    if (head_is_one && node.name == head)
      result.head_cpus = node.cpus;
    else if (result.others.size() + (head_is_one ? 1 : 0) < most)
      result.others.push_back(launched_node(node));
  }
  return result;
}

/// The name of the node that this process is on; empty if it is not in the job, for example after salloc.
std::string SlurmLauncher::head_of(const Job& job) const {
  const auto given = options_.env.find("SLURMD_NODENAME");
  const std::string host = sys::host_name();
  for (const std::string& name :
       {given == options_.env.end() ? host : given->second, host, host.substr(0, host.find('.'))})
    if (std::ranges::find(job.nodes, name, &JobNode::name) != job.nodes.end()) return name;
  return "";
}

void SlurmLauncher::launch(const LaunchNodes::Node& node, const JoinCommand& command) {
  const auto found = nodes_.find(node.name);
  if (found == nodes_.end()) throw InternalError("[engine.slurm] there is no node " + in_quotes(node.name));
  launched_ = true;
  commands_.start(node.name, tools_.on_node(found->second, agent_there(command.argv)), command.secret);
}

std::vector<Launcher::Ended> SlurmLauncher::ended() {
  std::vector<Ended> result;
  for (const auto& each : commands_.ended())
    result.push_back(
        {each.node, "srun has ended with " + to_string(each.status) + (each.lines.empty() ? "" : ": " + each.lines)});
  return result;
}

std::optional<LaunchNodes::Node> SlurmLauncher::replace(const std::string& lost) {
  commands_.forget(lost);
  auto& search = replacements_[lost];
  if (!search) {
    std::vector<std::string> used;
    for (const auto& [name, node] : nodes_) used.push_back(name);
    search = std::make_unique<Replacement>(tools_, nodes_.at(lost), used);
  }
  const auto found = search->look();
  if (!found) return std::nullopt;
  if (found->name != lost) {
    spares_.erase(lost);
    spares_[found->name] = search->take_spare();
  }
  replacements_.erase(lost);
  nodes_[found->name] = *found;
  return launched_node(*found);
}

void SlurmLauncher::stop() {
  replacements_.clear();
  for (const std::string& node : commands_.stop(kEndWithin))
    log_warning("[engine.slurm] srun for " + node + " did not end in time and was killed");
  spares_.clear();
  if (std::exchange(launched_, false)) cancel_steps();
}

/// A killed srun leaves its step running.
void SlurmLauncher::cancel_steps() {
  std::istringstream lines(
      tools_.run({"squeue", "--noheader", "--steps", "--jobs=" + tools_.job, "--format=%i %j", "--states=all"}));
  std::vector<std::string> words{"scancel"};
  for (std::string id, name; lines >> id && std::getline(lines >> std::ws, name);)
    if (name == tools_.step) words.push_back(id);
  if (words.size() > 1) tools_.run(std::move(words));
}

}  // namespace lockstep::engine::slurm
