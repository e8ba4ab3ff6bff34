#include "engine/launched_commands.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

namespace lockstep::engine {
namespace {

/// In one line, because csh takes no other within quotes.
constexpr const char* kFindAgent =
    R"(program=$1; shift; )"
    R"(if command -v "$program" >/dev/null 2>&1; then exec "$program" "$@"; fi; )"
    R"(if command -v lockstep >/dev/null 2>&1; then exec lockstep agent "$@"; fi; )"
    R"(echo "lockstep is not installed on $(uname -n): there is no $program, and no lockstep in PATH, which is $PATH; )"
    R"(install the same version there, in the same place or where that PATH finds it" >&2; exit 127)";

}  // namespace

void LaunchedCommands::start(const std::string& node, Program::Options options, const std::string& secret) {
  forget(node);
  options.input = secret + "\n";
  options.keep_input = true;
  running_.emplace(node, std::make_unique<Program>(options));
}

std::vector<LaunchedCommands::Ended> LaunchedCommands::ended() {
  std::vector<Ended> result;
  for (auto each = running_.begin(); each != running_.end();) {
    const auto status = each->second->ended();
    const std::string lines = each->second->last_lines();  // also of those that run, so that they do not fill memory
    if (status) result.push_back({each->first, *status, lines});
    each = status ? running_.erase(each) : std::next(each);
  }
  return result;
}

std::vector<std::string> LaunchedCommands::stop(Seconds patience) {
  for (const auto& [node, program] : running_) program->close_input();
  if (!all_end_within(patience)) {
    for (const auto& [node, program] : running_) program->signal(SIGTERM);
    all_end_within(patience);
  }
  std::vector<std::string> killed;
  for (const auto& [node, program] : running_) killed.push_back(node);
  running_.clear();
  return killed;
}

bool LaunchedCommands::all_end_within(Seconds patience) {
  const Instant deadline = now() + ticks(patience);
  std::erase_if(running_, [&](const auto& each) { return each.second->ended(deadline).has_value(); });
  return running_.empty();
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    line += line.empty() ? "'" : " '";
    for (const char c : word) {
      if (c == '\'')
        line += "'\\''";
      else
        line += c;
    }
    line += "'";
  }
  return line;
}

std::vector<std::string> agent_there(const std::vector<std::string>& argv) {
  std::vector<std::string> words{"sh", "-c", kFindAgent, "lockstep"};
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

}  // namespace lockstep::engine
