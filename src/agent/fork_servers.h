#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "agent/fork_server.h"
#include "agent/loop.h"
#include "wire/messages.h"

namespace lockstep::agent {

/// The fork servers of this node, one for each program and environment (Configure). Idle servers stay warm. If there
/// are too many, the least recently used one is ended.
class ForkServers {
 public:
  explicit ForkServers(Loop& loop) : loop_(loop) {}

  /// The live server for `configure`; starts one if there is none. Throws EngineError if its program cannot be
  /// executed. It is kept as long as it is alive and has a client.
  ForkServer& get(const wire::Configure& configure);
  /// The pids of the live servers.
  std::vector<int> pids() const;

 private:
  struct Entry {
    wire::Configure configure;
    std::unique_ptr<ForkServer> server;
  };
  void trim_soon();
  void trim();

  Loop& loop_;
  std::list<Entry> entries_;  ///< the most recently used one first
  bool trim_is_due_ = false;
};

/// Whether one fork server can serve both: program and environment are equal, except for variables that a shell changes
/// by itself.
bool same_server(const wire::Configure& a, const wire::Configure& b);

/// How many idle fork servers are kept: one if less than a tenth of the machine's memory is available, otherwise four.
std::size_t most_idle_servers(std::uint64_t available, std::uint64_t total);

}  // namespace lockstep::agent
