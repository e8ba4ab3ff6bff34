#pragma once

#include <memory>
#include <string>

#include "engine/launched_commands.h"
#include "engine/launcher.h"
#include "engine/slurm/allocation.h"
#include "engine/slurm/job_tools.h"
#include "engine/slurm/replacement.h"
#include "engine/slurm/spare_node.h"
#include "sys/environment.h"

namespace lockstep::engine::slurm {

/// Runs agents on the nodes of the allocation that this process is in, each as a job step of its own. A node offers the
/// cores and GPUs that the job has there. srun's exit codes are not believed: they are 0 for some lost nodes.
///
/// In place of a lost node comes the same, if it runs job steps, or another, which is asked for as a job of its own and
/// given back at the end.
class SlurmLauncher : public Launcher {
 public:
  struct Options {
    std::optional<int> nodes{};        ///< only this many, the driver's first; nothing: all of the job
    std::optional<bool> head_works{};  ///< whether this node takes workers; nothing: if it is in the job
    Environment env = sys::environment();
  };

  explicit SlurmLauncher(Options options) : options_(std::move(options)) {}
  ~SlurmLauncher() override;

  LaunchNodes nodes() override;
  void launch(const LaunchNodes::Node& node, const JoinCommand& command) override;
  std::vector<Ended> ended() override;
  std::optional<LaunchNodes::Node> replace(const std::string& lost) override;
  void stop() override;

 private:
  std::string head_of(const Job& job) const;
  void cancel_steps();

  const Options options_;
  JobTools tools_;
  bool launched_ = false;
  std::map<std::string, JobNode> nodes_;                      ///< all that were used
  std::map<std::string, std::unique_ptr<SpareNode>> spares_;  ///< the nodes that are jobs of their own
  LaunchedCommands commands_;
  std::map<std::string, std::unique_ptr<Replacement>> replacements_;
};

}  // namespace lockstep::engine::slurm
