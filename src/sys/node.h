#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::sys {

/// The address at which a machine reaches only itself.
inline constexpr const char* kLoopback = "127.0.0.1";

std::string host_name();
/// The IPv4 addresses of the interfaces that are up, by name.
std::map<std::string, std::string> interface_addresses();
/// The address at which others would reach this node: that of the interface with the default route, otherwise that of
/// any other interface, otherwise kLoopback.
std::string node_ip();

/// The machine's memory in bytes; zeros if it is unknown.
struct Memory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  ///< without swapping
};
Memory memory();

/// Cores that this process may use (affinity and cgroup quota, at least 1).
int usable_cores();

/// What a declared amount must be, if `amount` is wrong; otherwise empty.
std::string amount_must_be(const std::string& name, double amount);
/// The resources in LOCKSTEP_RESOURCES, a JSON object such as {"GPU": 4, "licence": 1}. Throws ConfigError if it is not
/// one, or an amount is negative.
std::map<std::string, double> declared_resources();

/// The ids of the GPUs: those in CUDA_VISIBLE_DEVICES, otherwise those that the driver lists. If `declared` has "GPU",
/// there are that many.
std::vector<std::string> gpu_ids(const std::map<std::string, double>& declared);
/// The resources of this machine: "CPU", "GPU", and those that `declared` adds or replaces.
std::map<std::string, double> node_resources(const std::map<std::string, double>& declared);

}  // namespace lockstep::sys
