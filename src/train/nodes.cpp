#include "train/nodes.h"

#include <list>
#include <mutex>

#include "engine/make_engine.h"
#include "sys/environment.h"
#include "train/engine_choice.h"

namespace lockstep::train {
namespace {

/// The nodes of an engine that spans several.
struct Spanning {
  explicit Spanning(const EngineConfig& engine)
      : config(engine),
        agents([engine] { return engine::make_engine(engine); },
               [&] {
                 engine::AgentSpec spec;
                 spec.nodes = engine.nodes.value_or(1);
                 return spec;
               }(),
               engine.replace_timeout),
        resources([this] { return agents.nodes(); }) {}

  const EngineConfig config;
  ProcessAgents agents;
  ResourcePool resources;
};

struct Registry {
  std::mutex mutex;
  std::list<Spanning> all;
};
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

EngineNodes local_nodes() { return {process_agents(), process_resources(), true}; }

EngineNodes nodes_of(const EngineConfig& engine) {
  const EngineConfig chosen = chosen_engine(engine, sys::environment());
  if (chosen.kind == "local") return local_nodes();
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  for (Spanning& each : known.all)
    if (each.config == chosen) return {each.agents, each.resources, false};
  Spanning& made = known.all.emplace_back(chosen);
  return {made.agents, made.resources, false};
}

}  // namespace lockstep::train
