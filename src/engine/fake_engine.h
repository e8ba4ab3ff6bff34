#pragma once

#include <lockstep/error.h>

#include <vector>

#include "engine/engine.h"
#include "sys/sockets.h"

namespace lockstep::engine {

/// An engine for tests: no process is started, the test plays the agents at the other ends of the sockets.
class FakeEngine : public Engine {
 public:
  std::vector<sys::Descriptor> start(const AgentSpec& spec) override {
    if (spec.nodes < 1) throw ConfigError("[engine.fake] no nodes");
    if (!agents.empty()) throw InternalError("[engine.fake] started twice");
    std::vector<sys::Descriptor> result;
    for (int i = 0; i < spec.nodes; ++i) {
      auto [ours, theirs] = sys::socket_pair();
      result.push_back(std::move(ours));
      agents.push_back(std::move(theirs));
    }
    return result;
  }
  void stop() override { agents.clear(); }

  std::vector<sys::Descriptor> agents;  ///< the agents' ends; closing one is that agent's death
};

}  // namespace lockstep::engine
