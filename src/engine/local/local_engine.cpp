#include "engine/local/local_engine.h"

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
#include "sys/own_program.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgentName = "lockstep-agent";
constexpr int kAgentFd = 3;
constexpr auto kSweepWithin = 5s;

std::string& default_agent() {
  static std::string path;
  return path;
}

std::vector<fs::path> candidates() {
  std::vector<fs::path> result = sys::places_of_program(kAgentName, "agent");
  if (!default_agent().empty()) result.insert(result.begin(), default_agent());
  return result;
}

}  // namespace

void set_default_agent(std::string path) {
  sys::set_program_directory(fs::path(path).parent_path());
  default_agent() = std::move(path);
}

fs::path find_agent() {
  if (const char* given = std::getenv("LOCKSTEP_AGENT"); given != nullptr && *given != '\0') {
    if (!sys::is_program(given))
      throw EngineError("[engine.local] LOCKSTEP_AGENT is " + in_quotes(given) +
                        ", which is not a program; correct or unset it");
    return given;
  }
  std::vector<std::string> searched;
  for (const auto& path : candidates()) {
    if (sys::is_program(path)) return path;
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
  AgentHandle head;
  head.name = sys::host_name();
  head.address = sys::kLoopback;
  head.resources = sys::node_resources(declared);
  head.gpu_ids = sys::gpu_ids(declared);
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
