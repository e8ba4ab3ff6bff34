#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine::ssh {

/// A machine that ssh reaches.
struct Host {
  std::string name;            ///< a name, an address, or a Host of the user's ssh config
  std::string user{};          ///< empty: as ssh decides
  std::optional<int> slots{};  ///< how many workers it has room for; nothing: one for each of its cores
  bool operator==(const Host&) const = default;

  /// What ssh takes.
  std::string destination() const { return user.empty() ? name : user + "@" + name; }
};

/// "a:8", "me@b", "c". Throws ConfigError if one cannot be read or is there twice, or if there is none.
std::vector<Host> parse_hosts(const std::vector<std::string>& entries);
/// The same, separated by commas: "a:8,b:8".
std::vector<Host> parse_hosts(std::string_view list);

/// A line for each host: "a slots=8", "a:8" or "a"; "#" begins a comment. `path` is for errors, which name the line.
std::vector<Host> parse_hostfile(std::string_view text, std::string_view path);

}  // namespace lockstep::engine::ssh
