#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::sys {

std::string host_name();
/// The address by which others would reach this node: of the interface with the default route, else of the host name,
/// else 127.0.0.1.
std::string node_ip();

/// Cores that this process may use (affinity and cgroup quota, at least 1).
int usable_cores();

/// What this machine offers: "CPU", "GPU" (CUDA_VISIBLE_DEVICES, else the driver's list) and whatever
/// LOCKSTEP_RESOURCES (a JSON object, e.g. {"GPU": 4, "licence": 1}) adds or replaces.
std::map<std::string, double> node_resources();
/// The GPUs' ids as CUDA_VISIBLE_DEVICES would name them.
std::vector<std::string> gpu_ids();

}  // namespace lockstep::sys
