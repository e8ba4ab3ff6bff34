#include "engine/slurm/job_tools.h"

#include <utility>

namespace lockstep::engine::slurm {
namespace {

/// Slurm's own clients give up after MessageTimeout, 10 s unless the site says otherwise.
constexpr Seconds kToolPatience{15.0};

}  // namespace

std::string JobTools::run(std::vector<std::string> words, const std::string& cwd) const {
  return output_of("[engine.slurm]", {.argv = std::move(words), .env = env, .cwd = cwd}, kToolPatience);
}

Job JobTools::show(const std::string& id) const {
  return parse_job(run({"scontrol", "--oneliner", "--details", "show", "job", id}));
}

Program::Options JobTools::on_node(const JobNode& node, const std::vector<std::string>& words) const {
  // --overlap: also while other steps use the cores. Without --exact a step has all that the job has on the node but
  // GPUs, which it must ask for by number: it would ask for those of the whole job.
  Program::Options options;
  options.argv = {"srun",       "--jobid=" + node.job,     "--job-name=" + step, "--nodes=1",
                  "--ntasks=1", "--nodelist=" + node.name, "--overlap",          "--mpi=none"};
  if (!node.gpus.empty()) options.argv.push_back("--gres=" + node.gpus);
  if (binds_cpus) options.argv.emplace_back("--cpu-bind=none");
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.env = env;
  return options;
}

}  // namespace lockstep::engine::slurm
