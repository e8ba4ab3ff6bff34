#pragma once

#include <lockstep/error.h>
#include <poll.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "sys/sockets.h"

namespace lockstep::engine {

/// An engine for tests. It starts no process; the test plays the agents, maybe in another thread.
class FakeEngine : public Engine {
 public:
  std::vector<AgentHandle> start(const AgentSpec& spec) override {
    if (spec.nodes < 1) throw ConfigError("[engine.fake] no nodes");
    const std::lock_guard lock(mutex_);
    if (control_) throw InternalError("[engine.fake] started twice");
    std::vector<AgentHandle> result(static_cast<std::size_t>(spec.nodes));
    for (int node = 0; AgentHandle & handle : result) {
      handle.node = node;
      handle.name = "node" + std::to_string(node);
      handle.address = "10.0.0." + std::to_string(++node);
      handle.resources = resources;
      handle.gpu_ids = gpu_ids;
    }
    std::tie(result.front().socket, control_) = sys::packet_pair();
    return result;
  }
  std::vector<LostNode> lost() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(lost_, {});
  }
  void stop() override {
    const std::lock_guard lock(mutex_);
    control_.reset();
  }

  /// The agents' end of the next connection that the caller makes; empty if none comes within some seconds.
  sys::Descriptor accept() {
    pollfd item{control_.get(), POLLIN, 0};
    if (::poll(&item, 1, 10'000) != 1) return {};
    auto fds = sys::receive_with_fds(control_.get()).second;
    return fds.size() == 1 ? std::move(fds[0]) : sys::Descriptor();
  }
  /// This node dies. If it is the head, node 0, the control connection ends. The test must close the connections of
  /// runs.
  void lose(int node, const std::string& why) {
    const std::lock_guard lock(mutex_);
    lost_.push_back({node, why});
    if (node == 0) control_.reset();
  }

  std::map<std::string, double> resources{{"CPU", 4}};  ///< of every node
  std::vector<std::string> gpu_ids;                     ///< of every node

 private:
  std::mutex mutex_;  // guards those below
  sys::Descriptor control_;
  std::vector<LostNode> lost_;
};

}  // namespace lockstep::engine
