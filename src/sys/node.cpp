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
#include "base/text.h"

namespace lockstep::sys {
namespace {

constexpr int kMostGpus = 1000;

/// The interface of the default route, from the kernel's table; empty if there is none.
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

/// The number of CPUs that the cgroup's quota allows; nothing if there is no quota.
std::optional<double> cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
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

Memory memory() {
  std::ifstream file("/proc/meminfo");
  Memory memory;
  std::string name, unit;
  for (std::uint64_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemTotal:") memory.total = kilobytes << 10;
    if (name == "MemAvailable:") memory.available = kilobytes << 10;
  }
  return memory;
}

std::map<std::string, std::string> interface_addresses() {
  std::map<std::string, std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    addresses.emplace(each->ifa_name, text);
  }
  freeifaddrs(all);
  return addresses;
}

std::string node_ip() {
  const auto addresses = interface_addresses();
  if (const auto found = addresses.find(default_interface()); found != addresses.end()) return found->second;
  for (const auto& [name, address] : addresses)
    if (!address.starts_with("127.")) return address;
  return kLoopback;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (const auto quota = cgroup_cores()) cores = std::min(cores, static_cast<int>(std::ceil(*quota)));
  return std::max(cores, 1);
}

std::string amount_must_be(const std::string& name, double amount) {
  if (!(amount >= 0) || std::isinf(amount)) return "0 or more";
  if (name == "GPU" && (amount != std::floor(amount) || amount > kMostGpus))
    return "a whole number of at most " + std::to_string(kMostGpus);
  return "";
}

std::map<std::string, double> declared_resources() {
  const char* text = std::getenv("LOCKSTEP_RESOURCES");
  std::map<std::string, double> resources;
  if (text == nullptr || *text == '\0') return resources;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("[resources] LOCKSTEP_RESOURCES is " + std::string(text) + why +
                      "; write an object such as {\"GPU\": 4}");
  };
  Value declared;
  try {
    declared = parse_json(text, "LOCKSTEP_RESOURCES");
  } catch (const Error&) {
    refuse(", which is not JSON");
  }
  if (!declared.is_object()) refuse(", which is not an object");
  for (const auto& [name, amount] : declared.items()) {
    if (!amount.is_number()) refuse(": the amount of " + in_quotes(name) + " is not a number");
    const double value = amount.get<double>();
    if (const std::string must_be = amount_must_be(name, value); !must_be.empty())
      refuse(": the amount of " + in_quotes(name) + " must be " + must_be);
    resources[name] = value;
  }
  return resources;
}

std::vector<std::string> gpu_ids(const std::map<std::string, double>& declared) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> ids;
  if (visible != nullptr) ids = split(visible, ',');
  // An invalid id hides itself and all ids after it, as in CUDA.
  ids.erase(std::ranges::find(ids, "-1"), ids.end());
  if (visible == nullptr) {
    std::error_code none;
    int count = 0;
    for (const auto& device : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
      (void)device;
      ids.push_back(std::to_string(count++));
    }
  }
  const auto found = declared.find("GPU");
  if (found == declared.end()) return ids;
  const auto wanted = static_cast<std::size_t>(found->second);
  ids.resize(std::min(wanted, ids.size()));
  for (std::size_t next = 0; ids.size() < wanted; ++next)
    if (std::string id = std::to_string(next); std::ranges::find(ids, id) == ids.end()) ids.push_back(std::move(id));
  return ids;
}

std::map<std::string, double> node_resources(const std::map<std::string, double>& declared) {
  auto resources = declared;
  resources.try_emplace("CPU", usable_cores());
  resources["GPU"] = static_cast<double>(gpu_ids(declared).size());
  return resources;
}

}  // namespace lockstep::sys
