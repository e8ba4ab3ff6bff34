#include <lockstep/error.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/clock.h"
#include "base/text.h"
#include "commands.h"
#include "engine/launched_commands.h"
#include "engine/program.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// sbatch's options that have no value as their next word; all others have.
constexpr std::array<std::string_view, 25> kWithoutValue{
    "contiguous",    "exclusive",  "get-user-env", "help",          "hold",     "ignore-pbs", "nice",
    "no-kill",       "no-requeue", "overcommit",   "oversubscribe", "parsable", "propagate",  "quiet",
    "reboot",        "requeue",    "resv-ports",   "spread-job",    "stepmgr",  "test-only",  "usage",
    "use-min-nodes", "verbose",    "version",      "wait"};
constexpr std::string_view kLettersWithoutValue = "hHkOQsvVW";
/// They are about the submission, not the job.
constexpr std::array<std::string_view, 5> kRefused{"help", "usage", "version", "wait", "wrap"};
constexpr std::string_view kRefusedLetters = "hVW";

constexpr const char* kWrittenByUs = "# Written by `lockstep submit slurm`";
constexpr Seconds kSubmitWithin{120.0};

struct Submission {
  std::vector<std::string> options;  ///< of sbatch, each as a line of the job's script has it
  std::vector<std::string> script;   ///< with its arguments
};

/// A word as "#SBATCH" lines take it.
std::string option_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_%+=:,./@[]*&|()-";
  if (word.find('\n') != std::string::npos)
    throw UsageError("[submit] the option " + in_quotes(word) + " has more than one line");
  if (word.find_first_not_of(kPlain) == std::string::npos && !word.empty()) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

[[noreturn]] void refuse(const std::string& option) {
  throw UsageError("[submit] " + option +
                   " does not go with `lockstep submit slurm`, which writes the job's script and does not wait for it; "
                   "call sbatch yourself: sbatch " +
                   option + " ... --wrap \"lockstep run train.py\"");
}

/// Splits the words into options of sbatch and the script with its arguments.
Submission read(const std::vector<std::string>& words) {
  Submission given;
  std::size_t i = 0;
  const auto value_of = [&](const std::string& option) {
    if (i >= words.size()) throw UsageError("[submit] the option " + option + " of sbatch needs a value");
    return words[i++];
  };
  while (i < words.size() && words[i].starts_with('-') && words[i] != "-") {
    const std::string& word = words[i++];
    if (word == "--") break;
    if (word.starts_with("--")) {
      const std::string name = word.substr(2, word.find('=') - 2);
      if (std::ranges::find(kRefused, name) != kRefused.end()) refuse("--" + name);
      const bool is_whole =
          word.find('=') != std::string::npos || std::ranges::find(kWithoutValue, name) != kWithoutValue.end();
      given.options.push_back(option_word(is_whole ? word : word + "=" + value_of(word)));
    } else {
      if (kRefusedLetters.find(word[1]) != std::string_view::npos) refuse(word.substr(0, 2));
      const bool is_whole = word.size() > 2 || kLettersWithoutValue.find(word[1]) != std::string_view::npos;
      given.options.push_back(option_word(word) + (is_whole ? "" : " " + option_word(value_of(word))));
    }
  }
  given.script.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  if (given.script.empty()) throw UsageError("[submit] no script was given; try `lockstep submit slurm -N 4 train.py`");
  return given;
}

/// "train" of "dir/train.py" or of "-m project.train".
std::string job_name(const std::vector<std::string>& script) {
  if (script[0] == "-m" && script.size() > 1) return script[1].substr(script[1].rfind('.') + 1);
  const std::string name = fs::path(script[0]).stem();
  return name.empty() || name.starts_with('-') ? "lockstep" : name;
}

std::string job_script(const Submission& given, const std::string& name) {
  std::error_code error;
  const fs::path lockstep = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> command{error ? "lockstep" : lockstep.string(), "run"};
  command.insert(command.end(), given.script.begin(), given.script.end());
  std::string text = "#!/bin/bash\n" + std::string(kWrittenByUs) + "; to submit it again: sbatch " + name + ".sbatch\n";
  // A job that Slurm starts again, after the loss of a node, goes on in the same log.
  text += "#SBATCH --job-name=" + option_word(name) + "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  for (const std::string& option : given.options) text += "#SBATCH " + option + "\n";
  return text + "exec " + engine::shell_command(command) + "\n";
}

/// Replaces only a file that an earlier submission wrote.
void write_script(const fs::path& path, const std::string& text) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    std::ifstream old(path);
    std::string first, second;
    if (!std::getline(old, first) || !std::getline(old, second) || !second.starts_with(kWrittenByUs))
      throw ConfigError("[submit] " + in_quotes(path.string()) +
                        " is there, and was not written by this command; move it away, or submit it with sbatch");
  }
  std::ofstream file(path, std::ios::trunc);
  if (!(file << text << std::flush)) throw StorageError("[submit] " + in_quotes(path.string()) + " cannot be written");
}

/// The file of the job's output as Slurm knows it.
std::string output_file(const std::string& job) {
  try {
    std::istringstream words(
        engine::output_of("[submit]", {.argv = {"scontrol", "--oneliner", "show", "job", job}}, 10s));
    for (std::string word; words >> word;)
      if (word.starts_with("StdOut=/")) return word.substr(7);
  } catch (const EngineError&) {
    // The job is submitted; this line is not worth an error.
  }
  return "slurm-" + job + ".out";
}

}  // namespace

int submit_slurm(const std::vector<std::string>& words) {
  const Submission given = read(words);
  std::error_code ignored;
  if (!given.script[0].starts_with('-') && !fs::exists(given.script[0], ignored))
    throw ConfigError("[submit] there is no script " + in_quotes(given.script[0]) + "; check the path");
  const std::string name = job_name(given.script);
  const fs::path path = name + ".sbatch";
  write_script(path, job_script(given, name));

  engine::Program sbatch({.argv = {"sbatch", "--parsable", path.string()}});
  const auto status = sbatch.ended(now() + ticks(kSubmitWithin));
  const std::string said = sbatch.errors();
  if (!status || *status != sys::ExitStatus{})
    throw EngineError("[submit] sbatch " + path.string() +
                      (status ? " ended with " + engine::to_string(*status) : std::string(" does not end")) + ": " +
                      sbatch.last_lines());
  std::fputs(said.c_str(), stderr);
  const std::string answer = sbatch.output();  // "123", or "123;cluster"
  const std::string job = answer.substr(0, answer.find_first_of(";\n"));
  if (job.empty()) return 0;  // --test-only
  std::printf(
      "Submitted batch job %s (%s)\n"
      "  its state:   squeue -j %s\n"
      "  its output:  tail -F %s\n"
      "  its runs:    lockstep runs\n"
      "  to end it:   scancel %s\n",
      job.c_str(), path.c_str(), job.c_str(), output_file(job).c_str(), job.c_str());
  return 0;
}

}  // namespace lockstep::cli
