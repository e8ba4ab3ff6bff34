#include "agent/node_facts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace lockstep::agent {
namespace {

constexpr const char* kThere = "there";
constexpr const char* kMissing = "missing";

}  // namespace

std::map<std::string, std::string> facts_of(const wire::Configure& configure) {
  std::map<std::string, std::string> facts;
  const auto note = [&](const std::string& what, bool there) { facts[what] = there ? kThere : kMissing; };
  // A program without a slash is looked up in the node's own PATH.
  if (!configure.program.empty() && configure.program[0].find('/') != std::string::npos)
    note("the program " + configure.program[0], ::access(configure.program[0].c_str(), X_OK) == 0);
  std::error_code ignored;
  if (!configure.cwd.empty())
    note("the directory " + configure.cwd, std::filesystem::is_directory(configure.cwd, ignored));
  for (const auto& path : configure.paths) note("the path " + path, std::filesystem::exists(path, ignored));
  return facts;
}

bool is_anything_missing(const std::map<std::string, std::string>& facts) {
  return std::ranges::any_of(facts, [](const auto& fact) { return fact.second == kMissing; });
}

}  // namespace lockstep::agent
