#pragma once

#include <map>
#include <string>

namespace lockstep::driver {

/// By node: what must be the same on all nodes, by name (wire::AgentReady).
using NodeFacts = std::map<int, std::map<std::string, std::string>>;

/// What differs between these nodes and where, in one line; empty: nothing. Facts that a node does not have are not
/// compared. `names` has the nodes.
std::string differences(const NodeFacts& facts, const std::map<int, std::string>& names);

}  // namespace lockstep::driver
