#include "collective/nodes.h"

#include <lockstep/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

namespace lockstep::collective {
namespace {

constexpr char kRefused = '!', kList = '=';

/// "4:abcd": no byte of a value can be taken for the end of it.
std::string packed(const std::vector<std::string>& values) {
  std::string text(1, kList);
  for (const std::string& value : values) text += std::to_string(value.size()) + ":" + value;
  return text;
}

std::vector<std::string> unpacked(const std::string& text) {
  std::vector<std::string> values;
  for (std::size_t at = 1; at < text.size();) {
    const std::size_t colon = text.find(':', at);
    const std::string digits = text.substr(at, colon - at);
    if (colon == std::string::npos || digits.empty() || digits.size() > 9 ||
        digits.find_first_not_of("0123456789") != std::string::npos || colon + 1 + std::stoul(digits) > text.size())
      throw ConfigError(
          "[collective] rank 0 published what this rank does not understand; do all run the same Lockstep?");
    values.push_back(text.substr(colon + 1, std::stoul(digits)));
    at = colon + 1 + values.back().size();
  }
  return values;
}

std::string other_size(int rank, const std::string& size, int world) {
  return "[collective] rank " + std::to_string(rank) + " expects " + size + " ranks and rank 0 " +
         std::to_string(world) + "; give all the same world size";
}

std::string inode(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? std::to_string(info.st_ino) : "?";
}

}  // namespace

std::vector<std::string> exchange(KeyValueStore& store, const std::string& topic, int rank, int world,
                                  const std::string& value, std::chrono::milliseconds timeout) {
  const auto key = [&](int of) { return topic + "/" + std::to_string(of); };
  std::string all;
  if (rank == 0) {
    std::vector<std::string> values{value};
    for (int other = 1; other < world && all.empty(); ++other) {
      const std::string answer = store.get(key(other), timeout);
      const std::size_t space = answer.find(' ');
      const std::string size = answer.substr(0, space);
      if (size != std::to_string(world)) all = kRefused + other_size(other, size, world);
      values.push_back(space == std::string::npos ? "" : answer.substr(space + 1));
    }
    if (all.empty()) all = packed(values);
    store.set(topic, all);
  } else {
    store.set(key(rank), std::to_string(world) + " " + value);
    all = store.get(topic, timeout);
  }
  if (all.starts_with(kRefused)) throw ConfigError(all.substr(1));
  auto values = unpacked(all);
  if (static_cast<int>(values.size()) != world)
    throw ConfigError(other_size(rank, std::to_string(world), static_cast<int>(values.size())));
  return values;
}

std::string this_node() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " " + boot + " " + inode("/proc/self/ns/pid") + " " + inode("/proc/self/ns/net");
}

int Nodes::carriers() const {
  const auto smallest =
      std::min_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return smallest == ranks.end() ? 0 : static_cast<int>(smallest->size());
}

Nodes meet_nodes(KeyValueStore& store, int rank, int world, const Place& place, std::chrono::milliseconds timeout) {
  // Given names never equal found ones, so a rank without a name is not taken to be on a named node.
  const std::string name = place.node.empty() ? "found " + this_node() : "given " + place.node;
  std::vector<std::string> names, addresses;
  for (const std::string& value : exchange(store, "node", rank, world, packed({name, place.address}), timeout)) {
    auto parts = unpacked(value);
    parts.resize(2);
    names.push_back(std::move(parts[0]));
    addresses.push_back(std::move(parts[1]));
  }
  if (std::any_of(names.begin(), names.end(), [&](const auto& other) { return other[0] != names[0][0]; }))
    throw ConfigError(
        "[collective] some ranks were told the name of their node and others were not; set LOCKSTEP_COLLECTIVE_NODE "
        "on all ranks or on none");
  Nodes nodes;
  std::map<std::string, int> numbers;
  for (int each = 0; each < world; ++each) {
    const int node = numbers.emplace(names[each], static_cast<int>(numbers.size())).first->second;
    if (node == nodes.count()) nodes.ranks.emplace_back();
    nodes.node_of.push_back(node);
    nodes.place_of.push_back(static_cast<int>(nodes.ranks[node].size()));
    nodes.ranks[node].push_back(each);
    nodes.names.push_back("rank " + std::to_string(each) + " (node " + std::to_string(node) +
                          (addresses[each].empty() ? "" : ", " + addresses[each]) + ")");
  }
  return nodes;
}

}  // namespace lockstep::collective
