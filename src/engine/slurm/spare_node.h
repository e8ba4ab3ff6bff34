#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/program.h"
#include "engine/slurm/job_tools.h"

namespace lockstep::engine::slurm {

/// A node that is asked for as a job of its own, in place of a lost one. Slurm takes it back when this object ends, and
/// when this process does. (To move it into the first job would need a site that permits that, and jobs without GPUs.)
class SpareNode {
 public:
  /// Asks for as much as the job had on the lost node, but on none of `used`. `tools` is borrowed.
  SpareNode(const JobTools& tools, const JobNode& lost, const std::vector<std::string>& used);
  ~SpareNode();
  SpareNode(const SpareNode&) = delete;
  SpareNode& operator=(const SpareNode&) = delete;

  /// The node, once Slurm has given it. Does not wait for that.
  std::optional<JobNode> look();
  /// Why Slurm will give none; empty: it may.
  std::string refused();

 private:
  const JobTools& tools_;
  const std::string name_;
  std::unique_ptr<Program> salloc_;
};

}  // namespace lockstep::engine::slurm
