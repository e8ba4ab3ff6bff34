#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// What Slurm says about a job. Pure functions.
namespace lockstep::engine::slurm {

using Environment = std::map<std::string, std::string>;

/// A node and what the job has of it.
struct JobNode {
  std::string name;
  int cpus = 0;
  std::string gpus{};  ///< as --gres takes it: "gpu:2"; empty: none
  std::string job{};   ///< the job's id
  bool operator==(const JobNode&) const = default;
};

struct Job {
  std::string id, partition, qos, account;  ///< empty: none
  std::string memory{};                     ///< as an option of salloc; empty: the default
  std::string time_limit{};                 ///< empty: the default
  std::vector<JobNode> nodes{};
};

/// The names in "n[1-3,07],gpu5". Throws EngineError if it is not such a list.
std::vector<std::string> expand_hostlist(std::string_view list);

/// Reads what `scontrol --oneliner --details show job` prints. Throws EngineError if that is something else.
Job parse_job(std::string_view text);

/// Whether a process with these variables is in an allocation of more than one node, and not in a worker.
bool is_in_allocation_of_many(const Environment& env);

/// What to tell a user who started the program, whose command line is `command`, as many tasks of srun: each of them
/// would be a run of its own. Empty: this is not so.
std::string many_tasks_problem(const Environment& env, const std::string& command);

/// `env` for srun and salloc, which take options from variables of the job's own submission.
Environment environment_for_clients(Environment env);

}  // namespace lockstep::engine::slurm
