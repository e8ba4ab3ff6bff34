#pragma once

#include <lockstep/error.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::engine {

/// start() was interrupted.
class StartInterrupted : public EngineError {
  using EngineError::EngineError;
};

/// A node with its agent.
struct AgentHandle {
  int node = 0;                             ///< its index, which messages carry; 0 is the head
  std::string name;                         ///< host name
  std::string address;                      ///< IPv4, where the workers of all nodes reach it
  std::map<std::string, double> resources;  ///< "CPU", "GPU" and others that were declared
  std::vector<std::string> gpu_ids;         ///< as CUDA_VISIBLE_DEVICES names them
  bool works = true;                        ///< it takes workers
  sys::Descriptor socket;  ///< the head's control connection (connection.h); other agents are reached through the head
};

/// What the caller wants of an engine.
struct AgentSpec {
  int nodes = 1;                                  ///< an engine that spans nodes has its own number
  std::vector<int> interrupts{};                  ///< descriptors; start() gives up when one is readable
  std::function<void(const std::string&)> say{};  ///< called with lines for the user, maybe none
  /// Whether these nodes are enough, so that start() does not fail if others do not come; none: all must come.
  std::function<bool(const std::vector<AgentHandle>&)> enough{};
};

/// A node that is gone, and why.
struct LostNode {
  int node = 0;
  std::string why;
};

/// Starts and stops agents, one per node, and connects the caller to the head's agent. Does not know the messages on
/// its connections. Not thread-safe.
class Engine {
 public:
  /// Calls stop().
  virtual ~Engine() = default;

  /// Starts the agents and returns the nodes, the head first. When its control connection ends, an agent ends with
  /// everything it started. Throws EngineError if an agent cannot be started, and then none runs; ConfigError if the
  /// engine cannot serve the spec. Call it once, and again only after stop().
  virtual std::vector<AgentHandle> start(const AgentSpec& spec) = 0;

  /// The nodes that were lost since the last call. Does not wait.
  virtual std::vector<LostNode> lost() = 0;

  /// The nodes that came since the last call, with new indices or those of lost nodes. Those whose address
  /// has changed are among them. Does not wait longer than a second.
  virtual std::vector<AgentHandle> joined() { return {}; }

  /// Ends the agents and waits until they are gone. Sockets may still be open. Does nothing if no agent runs.
  virtual void stop() = 0;
};

}  // namespace lockstep::engine
