#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/program.h"
#include "engine/slurm/job_tools.h"
#include "engine/slurm/spare_node.h"

namespace lockstep::engine::slurm {

/// The search for a node in place of a lost one. The same node is asked again and again to run a step. When it has not
/// at first, Slurm is asked for another one too; if that comes, the job gives up the lost one.
class Replacement {
 public:
  /// `tools` is borrowed; `used` are the nodes that must not come.
  Replacement(const JobTools& tools, JobNode lost, std::vector<std::string> used)
      : tools_(tools), lost_(std::move(lost)), used_(std::move(used)) {}

  /// The node, once there is one. Takes less than a second.
  std::optional<JobNode> look();
  /// What holds the node that look() returned; nothing if that is the lost one.
  std::unique_ptr<SpareNode> take_spare() { return std::move(taken_); }

 private:
  bool is_back();
  std::optional<JobNode> spare();
  void give_up_lost() const;

  const JobTools& tools_;
  const JobNode lost_;
  const std::vector<std::string> used_;
  std::unique_ptr<Program> probe_;
  Instant probe_end_{}, next_probe_{}, next_request_{};
  bool may_request_ = false;
  std::unique_ptr<SpareNode> spare_, taken_;
};

}  // namespace lockstep::engine::slurm
