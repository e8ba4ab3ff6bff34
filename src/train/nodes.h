#pragma once

#include <lockstep/engine_config.h>

#include "train/agent_slot.h"
#include "train/resource_pool.h"

namespace lockstep::train {

/// The nodes of one engine: their agents, and which runs hold what of them.
struct EngineNodes {
  ProcessAgents& agents;
  ResourcePool& resources;
  bool is_local = true;  ///< this machine alone: its resources are known before an agent runs
};

/// The nodes that this process shares among all runs with this engine (chosen_engine()). They are never destroyed: the
/// agents end when the process does. Any thread may call it. Throws ConfigError.
EngineNodes nodes_of(const EngineConfig& engine);

/// Those of this machine.
EngineNodes local_nodes();

}  // namespace lockstep::train
