#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// On which nodes the workers of a run are, and what starts agents there.
struct EngineConfig {
  /// "local": this machine. "slurm", "ray", "ssh": nodes of such a cluster. "join": agents that arrive by themselves.
  /// "auto": what LOCKSTEP_ENGINE says; else Slurm, inside an allocation of more than one node; else local.
  std::string kind = "auto";
  std::optional<int> nodes{};        ///< how many, the driver's own too if it takes workers; nothing: all; join: 2
  std::vector<std::string> hosts{};  ///< ssh: "a:8" is a host with room for eight workers
  std::string hostfile{};            ///< ssh: the same as a file, a line each: "a slots=8"
  std::string address{};             ///< ray: of the cluster; empty: RAY_ADDRESS, or else the one on this machine
  std::optional<int> port{};         ///< where the head agent listens; nothing: join: 29400, others: any
  std::string secret_file{};         ///< join: holds the run's secret; made if it does not exist
  std::optional<bool> head_works{};  ///< whether the driver's node takes workers; nothing: the engine decides
  std::string network_interface{};   ///< for everything between nodes; empty: by which they reach each other
  std::chrono::duration<double> node_timeout{5.0};      ///< a node without a sign of life for this long is lost
  std::chrono::duration<double> start_timeout{300.0};   ///< for all nodes to join
  std::chrono::duration<double> replace_timeout{30.0};  ///< for a node to come in place of a lost one

  bool operator==(const EngineConfig&) const = default;
};

}  // namespace lockstep
