#pragma once

#include <lockstep/config.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::driver {

/// An amount of a resource, in ten-thousandths, so that fractions add up exactly.
using Amount = std::int64_t;
constexpr Amount kWhole = 10'000;

/// Rounds to the nearest ten-thousandth; an amount above 0 becomes at least one.
Amount to_amount(double value);
double to_double(Amount amount);
/// "2", "0.5".
std::string amount_text(Amount amount);

/// A GPU, and how much of it is free.
struct GpuOffer {
  std::string id;  ///< as CUDA_VISIBLE_DEVICES names it
  Amount free = kWhole;

  bool operator==(const GpuOffer&) const = default;
};

/// The resources of a node. Its number is its index in the list of nodes.
struct NodeOffer {
  std::string name;
  std::string address;                    ///< IPv4, by which the workers of all nodes reach it
  std::map<std::string, Amount> amounts;  ///< "CPU" and the user's own; GPUs are listed below
  std::vector<GpuOffer> gpus;
  bool lost = false;  ///< it takes no worker

  bool operator==(const NodeOffer&) const = default;
};

/// Where a rank runs, and what it gets there.
struct RankPlace {
  int rank = 0;
  int node = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;                       ///< of its node among those that have workers
  std::string address;                     ///< of its node; the loopback if all ranks are on one node
  std::map<std::string, std::string> env;  ///< CUDA_VISIBLE_DEVICES and OMP_NUM_THREADS
  std::vector<std::string> gpus;           ///< ids
};

/// Where the workers of an attempt run.
struct Placement {
  std::vector<RankPlace> ranks;    ///< by rank; the ranks of a node are neighbours
  std::vector<std::string> notes;  ///< lines to tell the user
  std::string head_address;        ///< by which workers reach the driver: that of the first node, where it runs
  bool crowded = false;            ///< a node has more workers than cores

  int world_size() const { return static_cast<int>(ranks.size()); }
  /// The nodes that have workers, in order.
  std::vector<int> nodes() const;
};

/// What each worker asks for: resources_per_worker, and one GPU if use_gpu is set.
std::map<std::string, Amount> asked_per_worker(const ScalingConfig& scaling);
bool asks_for_anything(const std::map<std::string, Amount>& asked);
/// Whether it includes CPUs. Workers that ask for none share the free cores.
bool asks_for_cpus(const std::map<std::string, Amount>& asked);

/// Places the workers on the nodes. GPUs, and everything in resources_per_worker, are never given out twice. If no CPUs
/// are asked for, there may be more workers than cores; a note says so.
///
/// PACK          as few nodes as possible; a node counts as full when it has as many workers as cores, until all are
/// STRICT_PACK   one node
/// SPREAD        as evenly as possible
/// STRICT_SPREAD every worker on a node of its own
///
/// A worker gets OMP_NUM_THREADS, unless `env` (the user's) has it: the CPUs that it asked for, otherwise the node's
/// cores divided by the node's workers. If num_workers is a range, there are as many workers as fit; workers that ask
/// for nothing fit if each has a core, but the least number is placed anyway. If the workers do not fit, throws
/// ConfigError with what was asked for and what there is.
Placement place(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes,
                const std::map<std::string, std::string>& env);

/// The same, but returns nothing if they do not fit.
std::optional<Placement> place_if_it_fits(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes,
                                          const std::map<std::string, std::string>& env);

}  // namespace lockstep::driver
