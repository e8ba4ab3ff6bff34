#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace lockstep::engine {

/// What a launcher runs on a node. The agent that it starts joins the head agent.
struct JoinCommand {
  std::vector<std::string> argv;  ///< reads the secret from its standard input, and ends when that does
  std::string secret;             ///< one line, which goes to that standard input and nowhere else
};

/// The nodes of a launcher.
struct LaunchNodes {
  struct Node {
    std::string name;            ///< unique; the agent's --name
    std::optional<double> cpus;  ///< what it offers; nothing: what the agent finds there
  };
  std::vector<Node> others;         ///< where an agent is launched, in the order of their indices, from 1
  bool head_works = true;           ///< the head takes workers too
  std::optional<double> head_cpus;  ///< what it then offers; nothing: what there is
};

/// Runs agents on the nodes of one kind of cluster, for a ClusterEngine. It knows no messages and no training: agents
/// tell by themselves that they joined and when they are lost. Not thread-safe.
class Launcher {
 public:
  /// Calls stop().
  virtual ~Launcher() = default;

  /// The nodes of this run, called once. Throws ConfigError if the options cannot be met, EngineError otherwise.
  virtual LaunchNodes nodes() = 0;

  /// Runs the command on the node. Does not wait until it runs. Throws EngineError.
  virtual void launch(const LaunchNodes::Node& node, const JoinCommand& command) = 0;

  /// A launched command that has ended.
  struct Ended {
    std::string node;
    std::string why;  ///< with the last lines that it printed
  };
  /// Those since the last call. Does not wait.
  virtual std::vector<Ended> ended() = 0;

  /// Asks for a node in place of a lost one: maybe the same. Returns nothing if there is none yet; it is asked again
  /// after a moment. The caller then launches an agent there. Does not wait longer than a second.
  virtual std::optional<LaunchNodes::Node> replace(const std::string& lost) = 0;

  /// Ends all launched commands and waits for that, a few seconds at most.
  virtual void stop() = 0;
};

}  // namespace lockstep::engine
