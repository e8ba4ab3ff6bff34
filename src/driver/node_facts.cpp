#include "driver/node_facts.h"

#include <vector>

#include "base/text.h"

namespace lockstep::driver {

std::string differences(const NodeFacts& facts, const std::map<int, std::string>& names) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> nodes;  // by fact and value
  for (const auto& [node, name] : names)
    if (const auto found = facts.find(node); found != facts.end())
      for (const auto& [fact, value] : found->second) nodes[fact][value].push_back(name);
  std::vector<std::string> texts;
  for (const auto& [fact, values] : nodes) {
    if (values.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [value, where] : values) parts.push_back(value + " on " + joined(where, ", "));
    texts.push_back(fact + " is " + joined(parts, " and "));
  }
  return joined(texts, "; ");
}

}  // namespace lockstep::driver
