#include "engine/ssh/hosts.h"

#include <lockstep/error.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "base/text.h"

namespace lockstep::engine::ssh {
namespace {

constexpr int kMostSlots = 1'000'000;
constexpr const char* kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw ConfigError("[engine.ssh] " + where + " " + what);
}

/// ssh must not take a name for an option.
void check_name(const std::string& where, const std::string& name) {
  if (name.empty() || name.starts_with('-') || name.find_first_not_of(kNameCharacters) != std::string::npos)
    refuse(where, "has " + in_quotes(name) + ", which cannot be the name of a host or user; write a:8, me@a:8 or a");
}

int slots_of(const std::string& where, std::string_view text) {
  int slots = 0;
  const char* end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, slots);
      read.ec != std::errc() || read.ptr != end || slots < 1 || slots > kMostSlots)
    refuse(where, "has " + in_quotes(text) + " slots; it must be a whole number of at least 1");
  return slots;
}

/// "me@a:8".
Host host_of(const std::string& where, std::string text) {
  Host host;
  if (const auto colon = text.find(':'); colon != std::string::npos) {
    host.slots = slots_of(where, std::string_view(text).substr(colon + 1));
    text.resize(colon);
  }
  if (const auto at = text.rfind('@'); at != std::string::npos) {
    host.user = text.substr(0, at);
    check_name(where, host.user);
    text.erase(0, at + 1);
  }
  check_name(where, text);
  host.name = text;
  return host;
}

/// The hosts so far, each with where it was named.
class Hosts {
 public:
  void add(const std::string& where, Host host) {
    if (const auto [first, is_new] = where_.try_emplace(host.name, where); !is_new)
      refuse(where, "names the host " + in_quotes(host.name) + " again (first in " + first->second +
                        "); name it once, with all its slots");
    hosts_.push_back(std::move(host));
  }
  std::vector<Host> take(const std::string& where) {
    if (hosts_.empty()) refuse(where, "names no host; write for example a:8,b:8, or in a file a line: a slots=8");
    return std::move(hosts_);
  }

 private:
  std::map<std::string, std::string> where_;
  std::vector<Host> hosts_;
};

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

}  // namespace

std::vector<Host> parse_hosts(const std::vector<std::string>& entries) {
  const std::string where = "the list of hosts";
  Hosts hosts;
  for (const std::string& entry : entries) hosts.add(where, host_of(where, trimmed(entry)));
  return hosts.take(where);
}

std::vector<Host> parse_hosts(std::string_view list) {
  std::vector<std::string> entries;
  if (!trimmed(list).empty()) {
    std::istringstream stream{std::string(list)};
    for (std::string entry; std::getline(stream, entry, ',');) entries.push_back(entry);
    if (list.ends_with(',')) entries.emplace_back();
  }
  return parse_hosts(entries);
}

std::vector<Host> parse_hostfile(std::string_view text, std::string_view path) {
  const std::string file = "the hostfile " + in_quotes(path);
  Hosts hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = file + ", line " + std::to_string(++number) + ",";
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    Host host = host_of(where, word);
    while (words >> word) {
      if (!word.starts_with("slots=")) refuse(where, "has the word " + in_quotes(word) + "; write `a slots=8`");
      if (host.slots) refuse(where, "says twice how many slots the host has");
      host.slots = slots_of(where, word.substr(6));
    }
    hosts.add(where, std::move(host));
  }
  return hosts.take(file);
}

}  // namespace lockstep::engine::ssh
