#include "sys/node.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <lockstep/error.h>
#include <optional>
#include <sstream>

#include "base/json.h"

namespace lockstep::sys {
namespace {

/// The interface of the route to everywhere, from the kernel's table; empty when there is none.
std::string default_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string interface, destination;
    if (fields >> interface >> destination && destination == "00000000") return interface;
  }
  return {};
}

/// CPUs that the cgroup's quota allows; nothing without one.
std::optional<double> cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

std::map<std::string, double> declared_resources() {
  const char* text = std::getenv("LOCKSTEP_RESOURCES");
  std::map<std::string, double> resources;
  if (text == nullptr || *text == '\0') return resources;
  const Value declared = parse_json(text, "the environment variable LOCKSTEP_RESOURCES");
  const auto refuse = [&] {
    throw ConfigError("[resources] LOCKSTEP_RESOURCES is " + std::string(text) +
                      "; write an object such as {\"GPU\": 4}");
  };
  if (!declared.is_object()) refuse();
  for (const auto& [name, amount] : declared.items()) {
    if (!amount.is_number()) refuse();
    resources[name] = amount.get<double>();
  }
  return resources;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string node_ip() {
  const std::string wanted = default_interface();
  std::string address = "127.0.0.1";
  ifaddrs* all = nullptr;
  if (wanted.empty() || getifaddrs(&all) != 0) return address;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || wanted != each->ifa_name) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    address = text;
    break;
  }
  freeifaddrs(all);
  return address;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (const auto quota = cgroup_cores()) cores = std::min(cores, static_cast<int>(std::ceil(*quota)));
  return std::max(cores, 1);
}

std::vector<std::string> gpu_ids() {
  const auto declared = declared_resources();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> ids;
  if (visible != nullptr) ids = split(visible, ',');
  // An id that is not valid hides itself and all behind it, as CUDA has it.
  ids.erase(std::ranges::find(ids, "-1"), ids.end());
  if (visible == nullptr) {
    std::error_code none;
    int count = 0;
    for (const auto& device : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
      (void)device;
      ids.push_back(std::to_string(count++));
    }
  }
  if (const auto found = declared.find("GPU"); found != declared.end()) {
    for (int i = static_cast<int>(ids.size()); i < static_cast<int>(found->second); ++i)
      ids.push_back(std::to_string(i));
    ids.resize(static_cast<std::size_t>(std::max(0.0, found->second)));
  }
  return ids;
}

std::map<std::string, double> node_resources() {
  auto resources = declared_resources();
  resources.try_emplace("CPU", usable_cores());
  resources["GPU"] = static_cast<double>(gpu_ids().size());
  return resources;
}

}  // namespace lockstep::sys
