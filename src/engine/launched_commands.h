#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/launcher.h"
#include "engine/program.h"

namespace lockstep::engine {

/// The programs that run the join command on nodes, one for each node. Their standard input brings the secret and stays
/// open: when it ends, so must the agent. Not thread-safe.
class LaunchedCommands {
 public:
  /// Starts the program for a node. One that still runs for it is killed.
  void start(const std::string& node, Program::Options options, const std::string& secret);
  /// Kills the node's program.
  void forget(const std::string& node) { running_.erase(node); }

  struct Ended {
    std::string node;
    sys::ExitStatus status;
    std::string lines;  ///< the last that it printed
  };
  /// Those that ended since the last call.
  std::vector<Ended> ended();

  /// Ends their standard inputs and waits; then sends SIGTERM and waits; then kills. Returns the nodes of those that it
  /// had to kill. Each wait takes at most `patience`.
  std::vector<std::string> stop(Seconds patience);

 private:
  bool all_end_within(Seconds patience);

  std::map<std::string, std::unique_ptr<Program>> running_;
};

/// A shell's command line that runs these words.
std::string shell_command(const std::vector<std::string>& words);

/// A program for the node that runs the agent `argv` there; if it is not at that place, the `lockstep` in PATH runs its
/// own. Without either it says so and ends with kNotInstalled.
std::vector<std::string> agent_there(const std::vector<std::string>& argv);
inline constexpr int kNotInstalled = 127;

}  // namespace lockstep::engine
