#include "engine/local/local_engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/environment.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgentName = "lockstep-agent";
constexpr int kAgentFd = 3;
constexpr const char* kAgentId = "LOCKSTEP_AGENT_ID";
constexpr auto kSweepWithin = 5s;

/// Directories of the library that holds this code and of the running executable.
std::vector<fs::path> own_directories() {
  std::vector<fs::path> result;
  std::error_code error;
  Dl_info info{};
  static const int here = 0;
  // For the executable itself the loader may know a relative name only; /proc has the whole one.
  if (::dladdr(&here, &info) != 0 && info.dli_fname != nullptr && info.dli_fname[0] == '/')
    if (const auto path = fs::canonical(info.dli_fname, error); !error) result.push_back(path.parent_path());
  if (const auto path = fs::read_symlink("/proc/self/exe", error); !error) result.push_back(path.parent_path());
  return result;
}

std::string& default_agent() {
  static std::string path;
  return path;
}

/// An installed agent lies beside us or where the program was told, a built one elsewhere in the same build tree.
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
                        ", which is no program; correct or unset it");
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

std::vector<sys::Descriptor> LocalEngine::start(const AgentSpec& spec) {
  if (spec.nodes != 1)
    throw ConfigError("[engine.local] this machine is one node; " + std::to_string(spec.nodes) + " were asked for");
  if (agent_.pid != 0) throw InternalError("[engine.local] the agent has been started already");
  auto [ours, theirs] = sys::socket_pair();
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = {(options_.agent.empty() ? find_agent() : options_.agent).string(), "--fd", std::to_string(kAgentFd),
                  "--parent", std::to_string(::getpid())};
  options.fds = {{theirs.get(), kAgentFd}, {null.get(), 0}};
  options.own_session = true;
  options.env = sys::environment();
  const std::string id = random_hex(32);
  options.env->insert_or_assign(kAgentId, id);
  mark_ = std::string(kAgentId) + "=" + id;
  agent_ = sys::spawn(options);
  owner_ = ::getpid();
  std::vector<sys::Descriptor> result;
  result.push_back(std::move(ours));
  return result;
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
  // One that ends by itself has swept; orphans of one that was killed bear its mark.
  if (sys::take_exit(agent.pidfd.get(), true) == sys::ExitStatus{}) return;
  if (!sys::kill_marked(mark_, now() + kSweepWithin)) log_warning("processes of a killed agent are still there");
}

}  // namespace lockstep::engine
