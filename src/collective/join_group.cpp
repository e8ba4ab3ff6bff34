#include "collective/join_group.h"

#include <algorithm>
#include <string>
#include <vector>

#include "collective/spanning_group.h"

namespace lockstep::collective {
namespace {

/// Ranks of one node wait so much longer for each other than for other nodes: one that waits for another node should
/// report that before its neighbours, who wait for it, report it.
constexpr std::chrono::seconds kGrace{2};

constexpr char kFine = '+', kUnshared = '~', kFailed = '!';

class NodeStore final : public KeyValueStore {
 public:
  NodeStore(KeyValueStore& store, int node) : store_(store), prefix_("node" + std::to_string(node) + "/") {}
  void set(const std::string& key, const std::string& value) override { store_.set(prefix_ + key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.get(prefix_ + key, timeout);
  }

 private:
  KeyValueStore& store_;
  std::string prefix_;
};

/// The group of this rank's node, or why there is none: all ranks of all nodes need to know before they go on.
struct Neighbourhood {
  std::unique_ptr<Communicator> group;
  std::string answer;
};

Neighbourhood join_neighbours(KeyValueStore& store, const Nodes& nodes, int rank, CommunicatorOptions options) {
  const int node = nodes.node_of[rank];
  options.names = {nodes.ranks[node], nodes.names};
  options.grace = kGrace;
  NodeStore near(store, node);
  const std::string where = " (on the node of rank " + std::to_string(nodes.ranks[node].front()) + ")";
  try {
    return {Communicator::join(near, nodes.place_of[rank], static_cast<int>(nodes.ranks[node].size()), options),
            std::string(1, kFine)};
  } catch (const CannotShareMemory& error) {
    return {nullptr, kUnshared + std::string(error.what()) + where};
  } catch (const std::exception& error) {
    return {nullptr, kFailed + std::string(error.what()) + where};
  }
}

}  // namespace

std::unique_ptr<Group> join_group(KeyValueStore& store, int rank, int world, const CommunicatorOptions& options,
                                  const Place& place, const MakeLinks& make_links) {
  if (place.alone || world == 1) return Communicator::join(store, rank, world, options);
  if (rank < 0 || rank >= world)
    throw ConfigError("[collective] rank " + std::to_string(rank) + " in a group of " + std::to_string(world) +
                      "; ranks count from 0");
  const Nodes nodes = meet_nodes(store, rank, world, place, options.join_timeout);
  if (nodes.count() == 1) return Communicator::join(store, rank, world, options);
  auto [group, answer] = join_neighbours(store, nodes, rank, options);
  // A rank that waits for neighbours may take as long as they have; those of other nodes wait for its answer.
  const auto answers = exchange(store, "joined", rank, world, answer, options.join_timeout * 2);
  for (const char kind : {kFailed, kUnshared})
    for (const std::string& other : answers) {
      if (!other.starts_with(kind)) continue;
      if (kind == kUnshared) throw CannotShareMemory(other.substr(1));
      throw EngineError(other.substr(1));
    }
  return std::make_unique<SpanningGroup>(std::move(group), make_links(), nodes, rank);
}

}  // namespace lockstep::collective
