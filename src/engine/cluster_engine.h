#pragma once

#include <lockstep/engine_config.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/head_link.h"
#include "engine/launcher.h"
#include "engine/local/local_engine.h"

namespace lockstep::engine {

/// Agents on several nodes: the head's on this machine, and those that join it. A launcher starts them, or, without
/// one, they arrive by themselves, and more may arrive at any time. A secret is made for each start.
///
/// A lost node is replaced by one that the launcher gives, or by any that arrives.
class ClusterEngine : public Engine {
 public:
  /// `launcher`: null: agents arrive by themselves.
  ClusterEngine(EngineConfig config, std::unique_ptr<Launcher> launcher);
  ~ClusterEngine() override;

  /// Waits until all nodes have joined, or enough of them and no other for some seconds. Throws EngineError that says
  /// which have not, and how an agent joins by hand; StartInterrupted.
  std::vector<AgentHandle> start(const AgentSpec& spec) override;
  std::vector<LostNode> lost() override;
  std::vector<AgentHandle> joined() override;
  void stop() override;

 private:
  /// A command that was launched, whose agent has not joined.
  struct Launched {
    LaunchNodes::Node node;
    std::string instead_of;  ///< a lost node; empty: from the start
  };

  std::string who() const { return "[engine." + config_.kind + "] "; }
  void choose_nodes();
  void listen();
  void take_secret();
  void launch(const LaunchNodes::Node& node, const std::string& instead_of);
  void send_settings();
  void wait_for_nodes(const AgentSpec& spec);
  std::size_t wanted() const;
  std::string invitation() const;
  std::string missing_text(const std::string& why) const;

  void take_notices(const AgentSpec* spec);
  void take(const head_link::Joined& notice);
  void replace_lost();
  AgentHandle handle_of(const head_link::Joined& notice) const;
  std::string address_of(const head_link::Joined& notice) const;
  std::string head_address() const;
  AgentHandle head_offer() const;
  bool is_enough(const AgentSpec& spec) const;
  void offer_head();

  const EngineConfig config_;
  std::unique_ptr<Launcher> launcher_;
  LaunchNodes nodes_;
  LocalEngine local_;
  AgentHandle head_;  ///< without its socket
  sys::Descriptor link_;
  Bytes secret_;
  std::string made_file_;           ///< the secret's, if this engine made it
  std::vector<std::string> names_;  ///< of launched nodes, by index, from 1
  int port_ = 0;
  std::map<int, head_link::Joined> members_;  ///< the other nodes
  std::map<std::string, Launched> launched_;
  std::set<std::string> to_replace_;
  std::vector<LostNode> lost_;
  std::vector<AgentHandle> news_;
  std::string told_head_address_;
  Instant asked_{};
  int owner_ = 0;
};

}  // namespace lockstep::engine
