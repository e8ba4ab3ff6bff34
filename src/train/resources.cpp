#include "train/resources.h"

#include <algorithm>
#include <cmath>
#include <lockstep/error.h>

#include "base/text.h"

namespace lockstep::train {
namespace {

std::string amount_text(double amount) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", amount);
  return text;
}

/// What each worker asks for by name; GPUs also by use_gpu.
std::map<std::string, double> asked_for(const ScalingConfig& scaling) {
  auto asked = scaling.resources_per_worker;
  if (scaling.use_gpu) asked.try_emplace("GPU", 1);
  return asked;
}

void check_enough(const ScalingConfig& scaling, const NodeResources& node, const std::map<std::string, double>& asked) {
  for (const auto& [name, each] : asked) {
    const auto found = node.amounts.find(name);
    const double there = found == node.amounts.end() ? 0 : found->second;
    const double wanted = each * scaling.num_workers;
    if (wanted > there + 1e-9)
      throw ConfigError("[resources] " + std::to_string(scaling.num_workers) + " workers with " + amount_text(each) +
                        " " + name + " each need " + amount_text(wanted) + " " + name + ", but this machine has " +
                        amount_text(there) + "; ask for fewer workers or less " + name + " per worker");
  }
}

/// The GPUs of one rank: whole ones of its own, or one that it shares with ranks whose fractions fit beside its own.
std::string gpus_of(int rank, double each, const std::vector<std::string>& ids) {
  if (each >= 1) {
    const auto count = static_cast<std::size_t>(each);
    std::vector<std::string> mine;
    for (std::size_t i = 0; i < count; ++i) mine.push_back(ids.at(static_cast<std::size_t>(rank) * count + i));
    return joined(mine, ",");
  }
  const int per_gpu = static_cast<int>(std::floor(1 / each + 1e-9));
  return ids.at(static_cast<std::size_t>(rank / per_gpu));
}

}  // namespace

Assignment assign(const ScalingConfig& scaling, const NodeResources& node,
                  const std::map<std::string, std::string>& env) {
  const auto asked = asked_for(scaling);
  check_enough(scaling, node, asked);
  Assignment assignment;
  assignment.rank_env.resize(static_cast<std::size_t>(scaling.num_workers));

  const auto gpu = asked.find("GPU");
  const double gpus_each = gpu == asked.end() ? 0 : gpu->second;
  if (gpus_each > 0) {
    const double needed = gpus_each >= 1 ? gpus_each * scaling.num_workers
                                         : std::ceil(scaling.num_workers / std::floor(1 / gpus_each + 1e-9));
    if (needed > static_cast<double>(node.gpu_ids.size()) + 1e-9)
      throw ConfigError("[resources] " + std::to_string(scaling.num_workers) + " workers with " +
                        amount_text(gpus_each) + " GPU each need " + amount_text(needed) +
                        " devices, but this machine has " + std::to_string(node.gpu_ids.size()) +
                        "; ask for fewer workers or less GPU per worker");
    for (int rank = 0; rank < scaling.num_workers; ++rank)
      assignment.rank_env[static_cast<std::size_t>(rank)]["CUDA_VISIBLE_DEVICES"] =
          gpus_of(rank, gpus_each, node.gpu_ids);
  } else {
    for (auto& each : assignment.rank_env) each["CUDA_VISIBLE_DEVICES"] = "";
  }

  const int cores = std::max(1, static_cast<int>(node.amounts.contains("CPU") ? node.amounts.at("CPU") : 1));
  if (!env.contains("OMP_NUM_THREADS"))
    for (auto& each : assignment.rank_env)
      each["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / scaling.num_workers));
  if (scaling.num_workers > cores)
    assignment.notes.push_back(std::to_string(scaling.num_workers) + " workers share " + std::to_string(cores) +
                               (cores == 1 ? " core" : " cores"));
  return assignment;
}

}  // namespace lockstep::train
