#pragma once

#include <lockstep/value.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/launcher.h"
#include "engine/program.h"

namespace lockstep::engine::ray {

/// Runs agents on the nodes of an existing Ray cluster: an actor on each keeps the node's part of a placement group and
/// runs the agent, which does not outlive it. A helper program does what only Ray's Python package can.
///
/// The driver's machine takes workers only as a node of Ray: what it has besides is not Ray's to give. If it is none,
/// it becomes one without resources while this object exists.
class RayLauncher : public Launcher {
 public:
  struct Options {
    /// The helper: by default the module of this package, run by the python3 in PATH.
    std::vector<std::string> helper = {"python3", "-m", "lockstep._ray_nodes"};
    std::string address{};         ///< of the cluster; empty: RAY_ADDRESS, or else the cluster on this machine
    std::optional<int> nodes{};    ///< how many nodes; nothing: all that have a free core
    std::optional<int> workers{};  ///< ask for room for this many workers instead of for whole nodes
    std::map<std::string, double> resources_per_worker{{"CPU", 1}};
    std::string strategy = "PACK";  ///< PACK, SPREAD, STRICT_PACK or STRICT_SPREAD: which nodes, for workers
    Seconds patience{300};          ///< for Ray to have the room
  };

  explicit RayLauncher(Options options) : options_(std::move(options)) {}
  ~RayLauncher() override;

  LaunchNodes nodes() override;
  void launch(const LaunchNodes::Node& node, const JoinCommand& command) override;
  std::vector<Ended> ended() override;
  std::optional<LaunchNodes::Node> replace(const std::string& lost) override;
  void stop() override;

 private:
  void send(const Value& message);
  /// The next message of the helper; nothing at `deadline` or at its end.
  std::optional<Value> receive(Instant deadline);
  void take_messages();
  void take(const Value& message);
  std::string why_helper_ended();

  const Options options_;
  sys::Descriptor socket_;  ///< to the helper; closed when it has ended
  std::string received_;    ///< the beginning of a line
  std::unique_ptr<Program> helper_;
  std::set<std::string> launched_, asked_;
  std::vector<Ended> ended_;
  std::map<std::string, LaunchNodes::Node> replaced_;  ///< by the lost node
};

}  // namespace lockstep::engine::ray
