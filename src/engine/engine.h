#pragma once

#include <vector>

#include "sys/descriptor.h"

namespace lockstep::engine {

/// What the caller wants of an engine.
struct AgentSpec {
  int nodes = 1;
};

/// Starts and stops agents, one per node, and connects the caller to them. Knows nothing of what is said over the
/// connections. Not for several threads at once.
class Engine {
 public:
  /// Stops.
  virtual ~Engine() = default;

  /// Starts the agents and returns one connected stream socket for each, the head node's first. An agent whose socket
  /// is closed ends, and takes everything it started with it. Throws EngineError when an agent cannot be started, and
  /// then none runs; ConfigError when the engine cannot serve the spec. Once only, until stop().
  virtual std::vector<sys::Descriptor> start(const AgentSpec& spec) = 0;

  /// Ends the agents and waits until they are gone. Sockets need not be closed before. Does nothing when nothing runs.
  virtual void stop() = 0;
};

}  // namespace lockstep::engine
