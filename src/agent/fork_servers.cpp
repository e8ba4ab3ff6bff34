#include "agent/fork_servers.h"

#include <algorithm>

#include "sys/node.h"

namespace lockstep::agent {
namespace {

/// The part of the environment that matters to a fork server; workers get their own.
std::map<std::string, std::string> server_env(std::map<std::string, std::string> env) {
  for (const char* name : {"PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_"}) env.erase(name);
  return env;
}

}  // namespace

bool same_server(const wire::Configure& a, const wire::Configure& b) {
  return a.program == b.program && (a.env == b.env || server_env(a.env) == server_env(b.env));
}

std::size_t most_idle_servers(std::uint64_t available, std::uint64_t total) { return available < total / 10 ? 1 : 4; }

ForkServer& ForkServers::get(const wire::Configure& configure) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return !entry.server->dead() && same_server(entry.configure, configure); });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front({configure, std::make_unique<ForkServer>(loop_, configure, [this] { trim_soon(); })});
    trim_soon();  // the new one needs memory
  }
  return *entries_.front().server;
}

std::vector<int> ForkServers::pids() const {
  std::vector<int> result;
  for (const Entry& entry : entries_)
    if (!entry.server->dead()) result.push_back(entry.server->pid());
  return result;
}

/// Posted, because a server may be in the middle of a callback.
void ForkServers::trim_soon() {
  if (std::exchange(trim_is_due_, true)) return;
  loop_.post([this] { trim(); });
}

void ForkServers::trim() {
  trim_is_due_ = false;
  // End servers that still import and have no clients left: they may hang.
  std::erase_if(entries_, [](const Entry& entry) {
    return entry.server->dead() || (entry.server->idle() && !entry.server->ready());
  });
  const sys::Memory memory = sys::memory();
  std::size_t kept = most_idle_servers(memory.available, memory.total);
  std::erase_if(entries_, [&](const Entry& entry) {
    if (!entry.server->idle()) return false;
    if (kept == 0) return true;
    --kept;
    return false;
  });
}

}  // namespace lockstep::agent
