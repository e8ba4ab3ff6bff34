#pragma once

#include <lockstep/config.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::train {

/// What a node has.
struct NodeResources {
  std::map<std::string, double> amounts;  ///< "CPU", "GPU", and the user's own
  std::vector<std::string> gpu_ids;
};

/// What the workers get: their environment by rank, and lines to tell the user.
struct Assignment {
  std::vector<std::map<std::string, std::string>> rank_env;
  std::vector<std::string> notes;
};

/// Shares a node out among the workers. GPUs, and whatever resources_per_worker asks for, are never given twice:
/// ConfigError says what was asked and what there is. More workers than cores is fine unless CPUs were asked for.
/// OMP_NUM_THREADS becomes cores / workers unless `env` (the user's) has it.
Assignment assign(const ScalingConfig& scaling, const NodeResources& node,
                  const std::map<std::string, std::string>& env);

}  // namespace lockstep::train
