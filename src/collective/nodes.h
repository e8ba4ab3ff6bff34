#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collective/key_value_store.h"

namespace lockstep::collective {

/// Where a rank runs.
struct Place {
  /// Ranks with the same name share memory: they are on one node. Empty: this machine, as the kernel tells them apart
  /// (the boot, the namespaces of processes and of the network).
  std::string node = {};
  std::string address = {};  ///< by which other nodes reach this one; for messages, and for what must listen
  bool alone = false;        ///< it is known that all ranks of the group are on one node
};

/// The ranks of a group by node. Nodes are numbered by their first ranks.
struct Nodes {
  std::vector<int> node_of;             ///< by rank
  std::vector<int> place_of;            ///< by rank: its place among the ranks of its node
  std::vector<std::vector<int>> ranks;  ///< by node, in order
  std::vector<std::string> names;       ///< by rank, for messages: "rank 3 (node 1, 10.0.0.2)"

  int count() const { return static_cast<int>(ranks.size()); }
  /// Ranks of the smallest node: so many of every node exchange data with other nodes.
  int carriers() const;
};

/// Every rank gives a value and gets those of all, in order of the ranks. `topic` must be new in this store. Throws
/// ConfigError on all ranks if they disagree about the size of the group.
std::vector<std::string> exchange(KeyValueStore& store, const std::string& topic, int rank, int world,
                                  const std::string& value, std::chrono::milliseconds timeout);

/// All ranks call it and get the same.
Nodes meet_nodes(KeyValueStore& store, int rank, int world, const Place& place, std::chrono::milliseconds timeout);

/// The name of this machine as ranks compare it, if Place::node is empty.
std::string this_node();

}  // namespace lockstep::collective
