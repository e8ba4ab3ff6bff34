#include "engine/ssh/ssh_launcher.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <lockstep/error.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "sys/node.h"

namespace lockstep::engine::ssh {
namespace {

/// Agents end by themselves when their connections do; this is for hosts that do not answer.
constexpr Seconds kEndWithin{3.0};
/// Between two looks at whether a lost host is there again.
constexpr Seconds kProbePause{1.0};
/// ssh's own failures have this code.
constexpr int kSshFailed = 255;

/// The IPv4 addresses of this machine's interfaces.
std::set<std::uint32_t> own_addresses() {
  std::set<std::uint32_t> result;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return result;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET)
      result.insert(reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr.s_addr);
  ::freeifaddrs(all);
  return result;
}

std::string short_name(const std::string& name) { return name.substr(0, name.find('.')); }

std::string why_of(const LaunchedCommands::Ended& ended) {
  std::string why;
  if (ended.status.signal != 0)
    why = "ssh was ended by " + to_string(ended.status);
  else if (ended.status.code == kSshFailed)
    why = "ssh did not connect, or lost the connection";
  else if (ended.status.code == kNotInstalled)
    why = "the agent could not be started there";
  else
    why = "the agent has ended with " + to_string(ended.status);
  return ended.lines.empty() ? why : why + ": " + ended.lines;
}

}  // namespace

bool is_this_machine(const std::string& name) {
  const std::string own = sys::host_name();
  if (name == "localhost" || name == own || name == short_name(own)) return true;
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::set<std::uint32_t> own_ones = own_addresses();
  bool is_own = false;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const std::uint32_t address = reinterpret_cast<const sockaddr_in*>(each->ai_addr)->sin_addr.s_addr;
    is_own = is_own || own_ones.contains(address) || (ntohl(address) >> 24) == IN_LOOPBACKNET;
  }
  ::freeaddrinfo(found);
  return is_own;
}

SshLauncher::~SshLauncher() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

LaunchNodes SshLauncher::nodes() {
  const auto count = static_cast<std::size_t>(options_.nodes.value_or(static_cast<int>(options_.hosts.size())));
  if (count < 1 || count > options_.hosts.size())
    throw ConfigError("[engine.ssh] nodes is " + std::to_string(*options_.nodes) + ", but the list has " +
                      std::to_string(options_.hosts.size()) + " hosts");
  LaunchNodes result;
  bool head_is_listed = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Host& host = options_.hosts[i];
    const auto cpus = host.slots ? std::optional<double>(*host.slots) : std::nullopt;
    if (!head_is_listed && host.user.empty() && options_.head_works.value_or(true) && is_this_machine(host.name)) {
      head_is_listed = true;
      result.head_cpus = cpus;
    } else {
      result.others.push_back({host.name, cpus});
    }
  }
  result.head_works = options_.head_works.value_or(head_is_listed);
  return result;
}

const Host& SshLauncher::host_of(const std::string& node) const {
  const auto found = std::ranges::find(options_.hosts, node, &Host::name);
  if (found == options_.hosts.end()) throw InternalError("[engine.ssh] there is no host " + in_quotes(node));
  return *found;
}

Program::Options SshLauncher::command_for(const Host& host, const std::string& command) const {
  // What a config may have for people: questions, a terminal, forwarded ports and a connection that stays open. A
  // connection that is open already is used.
  constexpr std::array kForPrograms{"BatchMode=yes", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes",
                                    "ControlMaster=no"};
  Program::Options options;
  options.argv = options_.program;
  for (const char* option : kForPrograms) {
    options.argv.emplace_back("-o");
    options.argv.emplace_back(option);
  }
  for (const std::string& word : {std::string("--"), host.destination(), command}) options.argv.push_back(word);
  return options;
}

void SshLauncher::launch(const LaunchNodes::Node& node, const JoinCommand& command) {
  probes_.erase(node.name);
  commands_.start(node.name, command_for(host_of(node.name), shell_command(agent_there(command.argv))), command.secret);
}

std::vector<Launcher::Ended> SshLauncher::ended() {
  std::vector<Ended> result;
  for (const auto& each : commands_.ended()) result.push_back({each.node, why_of(each)});
  return result;
}

std::optional<LaunchNodes::Node> SshLauncher::replace(const std::string& lost) {
  const Host& host = host_of(lost);
  commands_.forget(lost);
  Probe& probe = probes_[lost];
  if (!probe.program) {
    if (now() < probe.next) return std::nullopt;
    probe.program = std::make_unique<Program>(command_for(host, "true"));
  }
  const auto status = probe.program->ended();
  if (!status) return std::nullopt;
  if (*status != sys::ExitStatus{}) {
    log_info("[engine.ssh] " + lost + " is not there yet: " + probe.program->last_lines());
    probe = {.program = nullptr, .next = now() + ticks(kProbePause)};
    return std::nullopt;
  }
  probes_.erase(lost);
  return LaunchNodes::Node{host.name, host.slots ? std::optional<double>(*host.slots) : std::nullopt};
}

void SshLauncher::stop() {
  probes_.clear();
  for (const std::string& node : commands_.stop(kEndWithin))
    log_warning("[engine.ssh] ssh to " + node + " did not end in time and was killed");
}

}  // namespace lockstep::engine::ssh
