#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/launched_commands.h"
#include "engine/launcher.h"
#include "engine/ssh/hosts.h"

namespace lockstep::engine::ssh {

/// Runs agents on other machines by OpenSSH's client, with the user's ssh config. It asks for nothing: keys must be
/// there, and host keys are checked as ssh does. An agent ends when its connection does.
///
/// The driver's machine takes workers if it is in the list. A lost host is taken again as soon as ssh reaches it.
class SshLauncher : public Launcher {
 public:
  struct Options {
    std::vector<Host> hosts;                     ///< of parse_hosts() or parse_hostfile()
    std::optional<int> nodes{};                  ///< only the first of them; nothing: all
    std::optional<bool> head_works{};            ///< whether this machine takes workers; nothing: if it is in the list
    std::vector<std::string> program = {"ssh"};  ///< with options for all hosts
  };

  explicit SshLauncher(Options options) : options_(std::move(options)) {}
  ~SshLauncher() override;

  LaunchNodes nodes() override;
  void launch(const LaunchNodes::Node& node, const JoinCommand& command) override;
  std::vector<Ended> ended() override;
  std::optional<LaunchNodes::Node> replace(const std::string& lost) override;
  void stop() override;

 private:
  /// A connection that only shows whether the host is there.
  struct Probe {
    std::unique_ptr<Program> program;
    Instant next{};  ///< not before this
  };

  Program::Options command_for(const Host& host, const std::string& command) const;
  const Host& host_of(const std::string& node) const;

  const Options options_;
  LaunchedCommands commands_;
  std::map<std::string, Probe> probes_;
};

/// Whether this name or address is one of the machine that this process runs on.
bool is_this_machine(const std::string& name);

}  // namespace lockstep::engine::ssh
