#include "engine/local/local_engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <tuple>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/agent_mark.h"
#include "sys/environment.h"
#include "sys/node.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgentName = "lockstep-agent";
constexpr int kAgentFd = 3;
constexpr auto kSweepWithin = 5s;

/// Directories of the library that holds this code and of the running executable.
std::vector<fs::path> own_directories() {
  std::vector<fs::path> result;
  std::error_code error;
  Dl_info info{};
  static const int here = 0;
  // For the executable itself, the loader may know only a relative name; /proc has the absolute one.
  if (::dladdr(&here, &info) != 0 && info.dli_fname != nullptr && info.dli_fname[0] == '/')
    if (const auto path = fs::canonical(info.dli_fname, error); !error) result.push_back(path.parent_path());
  if (const auto path = fs::read_symlink("/proc/self/exe", error); !error) result.push_back(path.parent_path());
  return result;
}

std::string& default_agent() {
  static std::string path;
  return path;
}

/// An installed agent is beside this library or at the default path; a built one is elsewhere in the same build tree.
std::vector<fs::path> candidates() {
  std::vector<fs::path> result;
  if (!default_agent().empty()) result.emplace_back(default_agent());
  for (const auto& directory : own_directories()) {
    for (const auto* relative : {"bin", "../bin", "."})
      result.push_back((directory / relative / kAgentName).lexically_normal());
    fs::path above = directory;
    for (int level = 0; level < 4 && above.has_relative_path(); ++level, above = above.parent_path())
      result.push_back(above / "src" / "agent" / kAgentName);
  }
  return result;
}

bool is_program(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

}  // namespace

void set_default_agent(std::string path) { default_agent() = std::move(path); }

fs::path find_agent() {
  if (const char* given = std::getenv("LOCKSTEP_AGENT"); given != nullptr && *given != '\0') {
    if (!is_program(given))
      throw EngineError("[engine.local] LOCKSTEP_AGENT is " + in_quotes(given) +
                        ", which is not a program; correct or unset it");
    return given;
  }
  std::vector<std::string> searched;
  for (const auto& path : candidates()) {
    if (is_program(path)) return path;
    searched.push_back(path.string());
  }
  throw EngineError("[engine.local] there is no lockstep-agent; set LOCKSTEP_AGENT to its path. Searched: " +
                    joined(searched, ", "));
}

LocalEngine::~LocalEngine() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

std::vector<AgentHandle> LocalEngine::start(const AgentSpec& spec) {
  if (spec.nodes != 1)
    throw ConfigError("[engine.local] this machine is one node; " + std::to_string(spec.nodes) + " were asked for");
  if (agent_.pid != 0) throw InternalError("[engine.local] the agent has been started already");
  const auto declared = sys::declared_resources();
  AgentHandle head{0, sys::host_name(), sys::kLoopback, sys::node_resources(declared), sys::gpu_ids(declared), {}};
  sys::Descriptor theirs;
  std::tie(head.socket, theirs) = sys::packet_pair();
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = {(options_.agent.empty() ? find_agent() : options_.agent).string(), "--fd", std::to_string(kAgentFd),
                  "--parent", std::to_string(::getpid())};
  options.fds = {{theirs.get(), kAgentFd}, {null.get(), 0}};
  options.own_session = true;
  options.env = sys::environment();
  const std::string id = random_hex(32);
  options.env->insert_or_assign(sys::kAgentId, id);
  mark_ = std::string(sys::kAgentId) + "=" + id;
  agent_ = sys::spawn(options);
  owner_ = ::getpid();
  told_lost_ = false;
  std::vector<AgentHandle> result;
  result.push_back(std::move(head));
  return result;
}

std::vector<LostNode> LocalEngine::lost() {
  if (agent_.pid == 0 || told_lost_ || owner_ != ::getpid()) return {};
  pollfd item{agent_.pidfd.get(), POLLIN, 0};
  if (::poll(&item, 1, 0) != 1) return {};
  told_lost_ = true;
  return {{0, "the agent has ended; its own message, if any, is on standard error"}};
}

void LocalEngine::stop() {
  sys::Process agent = std::move(agent_);
  agent_ = {};
  if (agent.pid == 0 || owner_ != ::getpid()) return;
  sys::send_signal(agent.pidfd.get(), SIGTERM);
  pollfd item{agent.pidfd.get(), POLLIN, 0};
  const auto deadline = std::chrono::steady_clock::now() + options_.stop_timeout;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    const int ready = ::poll(&item, 1, static_cast<int>(std::max<long long>(left, 0)));
    if (ready > 0) break;
    if (ready < 0) continue;  // a signal
    log_warning("the agent did not end in time and is killed");
    sys::send_signal(agent.pidfd.get(), SIGKILL);
    break;
  }
  // An agent that ends by itself has killed its processes. Those of a killed agent are found by its mark.
  if (sys::take_exit(agent.pidfd.get(), true) == sys::ExitStatus{}) return;
  if (!sys::kill_marked(mark_, now() + kSweepWithin)) log_warning("processes of a killed agent are still there");
}

}  // namespace lockstep::engine
