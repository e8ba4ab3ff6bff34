#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <lockstep/error.h>
#include <memory>

#include "base/text.h"
#include "base/version.h"
#include "commands.h"
#include "output_style.h"
#include "quantities.h"
#include "run_summary.h"

namespace lockstep::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct RunFormatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: lockstep run [-h] [--as-ray[=RELEASE]] SCRIPT [ARGS...]\n"
           "       lockstep run [-h] [--as-ray[=RELEASE]] -m MODULE [ARGS...]\n";
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return option->check_lname("as-ray") ? "--as-ray[=RELEASE]"
                                         : CLI::Formatter::make_option_name(option, is_positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->check_lname("as-ray") ? "" : CLI::Formatter::make_option_opts(option);
  }
};

/// Prints what is wrong with the arguments, and how to get help.
std::string failure_message(const CLI::App* app, const CLI::Error& error) {
  std::string command = app->get_name();
  const CLI::App* innermost = app;
  for (auto chosen = app->get_subcommands(); !chosen.empty(); chosen = innermost->get_subcommands()) {
    innermost = chosen.front();
    command += " " + innermost->get_name();
  }
  std::string what = error.what();
  const auto unknown = innermost->remaining();
  if (!unknown.empty() && error.get_name() == "RequiredError")
    what = "there is no command " + in_quotes(unknown.front());
  return "lockstep: " + what + "; see `" + command + " --help`\n";
}

void add_states(CLI::App& command, std::vector<std::string>& states, const char* what,
                const std::vector<std::string>& known) {
  command.add_option("--state", states, what)
      ->type_name("STATE,...")
      ->delimiter(',')
      ->allow_extra_args(false)  // the next word is the path
      ->check(CLI::IsMember(known));
}

/// `seconds` is a double, or an optional one; `unit` is that of a bare number.
template <class Seconds>
void add_duration(CLI::App& command, const std::string& name, const std::string& unit, Seconds& seconds,
                  const char* what) {
  command
      .add_option_function<std::string>(
          name, [name, unit, &seconds](const std::string& text) { seconds = parse_duration(text, name, unit); }, what)
      ->type_name("TIME");
}

/// The parser and the values of its options; `command` runs the chosen subcommand.
class CommandLine {
 public:
  CommandLine();
  int execute(int argc, char** argv);

 private:
  void add_run();
  void add_runs();
  void add_stop();
  void add_prune();
  void add_logs();
  void add_checkpoint();
  void add_new();
  void add_completion();
  CLI::App* add(CLI::App& parent, const char* name, const char* what, const char* examples);

  CLI::App app_{"Lockstep: train one function on many workers.", "lockstep"};
  std::function<int()> command_;
  std::string run_, project_, shell_, as_ray_;
  RunsOptions runs_;
  StopOptions stop_;
  PruneOptions prune_;
  LogsOptions logs_;
};

CommandLine::CommandLine() {
  app_.set_version_flag("--version", std::string("lockstep ") + kVersion, "Print the version and exit");
  app_.set_help_flag("-h,--help", "Print this help and exit");
  app_.add_flag_callback(
      "--cmake-dir",
      [this] {
        command_ = cmake_dir;
        throw CLI::Success();  // no subcommand is needed
      },
      "Print the directory of the CMake package and exit");
  app_.require_subcommand(1);
  app_.failure_message(failure_message);
  app_.footer(
      "Examples:\n"
      "  lockstep run train.py --epochs 10    run a script\n"
      "  lockstep runs                        all runs and their states\n"
      "  lockstep stop digits-1               end a run, keep its last checkpoint\n"
      "  lockstep prune --older-than 30d      delete old runs; asks first\n"
      "  lockstep logs digits-1 --rank 2 -f   follow the output of rank 2\n"
      "  lockstep checkpoint verify digits-1  check all its checkpoints\n"
      "  lockstep new cpp my_training         a C++ project to start from\n"
      "\n"
      "Runs are stored in LOCKSTEP_STORAGE_PATH (default: ~/lockstep_results).");
  add_run();
  add_runs();
  add_stop();
  add_prune();
  add_logs();
  add_checkpoint();
  add_new();
  add_completion();
}

CLI::App* CommandLine::add(CLI::App& parent, const char* name, const char* what, const char* examples) {
  CLI::App* command = parent.add_subcommand(name, what);
  command->set_help_flag("-h,--help", "Print this help and exit");
  command->footer(std::string("Examples:\n") + examples);
  return command;
}

void CommandLine::add_run() {
  CLI::App* run = add(app_, "run", "Run a Python script or module",
                      "  lockstep run train.py\n"
                      "  lockstep run train.py --epochs 10    everything after the script is passed to it\n"
                      "  lockstep run -m models.train         a module, as `python -m` does\n"
                      "  lockstep run --as-ray train.py       a script written for Ray; --as-ray=2.0 for that release");
  // The script's own options must reach it unparsed, so the script is not an option of ours.
  run->prefix_command();
  run->formatter(std::make_shared<RunFormatter>());
  // A flag with a value, so that the script after it is not taken as the release.
  run->add_flag("--as-ray{2.6}", as_ray_, "Let `import ray` be Lockstep: release 1.7, 2.0 or 2.6 (default)")
      ->check(CLI::IsMember({"1.7", "2.0", "2.6"}));
  run->callback([this, run] { command_ = [this, run] { return cli::run(run->remaining(), as_ray_); }; });
}

void CommandLine::add_runs() {
  CLI::App* runs = add(app_, "runs", "List runs: their state, failures, checkpoints and last metrics",
                       "  lockstep runs                  those in the default storage path\n"
                       "  lockstep runs /scratch/runs    those in a directory\n"
                       "  lockstep runs digits-1         one run\n"
                       "  lockstep runs --limit 10 --state failed,died\n"
                       "  lockstep runs --json           for programs: a JSON array");
  runs->add_option("PATH", runs_.path,
                   "A run's directory or name, or a directory of runs (default: ~/lockstep_results)")
      ->type_name("");
  add_states(*runs, runs_.states, "Only runs in these states", {kStates.begin(), kStates.end()});
  runs->add_option("--limit", runs_.limit, "Only the N newest")->type_name("N")->check(CLI::NonNegativeNumber);
  runs->add_flag("--json", runs_.json, "Print a JSON array");
  runs->callback([this] { command_ = [this] { return cli::runs(runs_); }; });
}

void CommandLine::add_stop() {
  CLI::App* stop = add(app_, "stop", "End a running run as Ctrl-C does, and wait for its end",
                       "  lockstep stop digits-1\n"
                       "  lockstep stop digits-1 --timeout 10m    its last checkpoint takes long to write\n"
                       "  lockstep stop digits-1 --kill           it does not respond");
  stop->add_option("RUN", stop_.run, "A run's directory, or its name")->required()->type_name("");
  add_duration(*stop, "--timeout", "s", stop_.timeout, "How long to wait (default: 60s)");
  stop->add_flag("--kill", stop_.kill, "Kill the driver at once; its workers end with it");
  stop->callback([this] { command_ = [this] { return cli::stop(stop_); }; });
}

void CommandLine::add_prune() {
  CLI::App* prune =
      add(app_, "prune", "Delete runs by age, number or size; shows them and asks first",
          "  lockstep prune --older-than 7d                   runs that ended more than a week ago\n"
          "  lockstep prune --keep 20                         all but the 20 newest\n"
          "  lockstep prune --max-size 10GB                   the oldest, until the rest take at most 10 GB\n"
          "  lockstep prune --state failed,died --keep 3      all of these but the 3 newest\n"
          "  lockstep prune /scratch/runs --keep 5 --dry-run  only show what would be deleted\n"
          "  lockstep prune digits-1                          one run\n"
          "\n"
          "With several criteria, a run is deleted only if all of them select it. Running runs are never deleted.");
  prune
      ->add_option("PATH", prune_.path,
                   "A run's directory or name, or a directory of runs (default: ~/lockstep_results)")
      ->type_name("");
  add_duration(*prune, "--older-than", "", prune_.older_than, "Runs that ended longer ago: 12h, 7d, 2w");
  prune->add_option("--keep", prune_.keep, "All but the N newest")->type_name("N")->check(CLI::NonNegativeNumber);
  prune
      ->add_option_function<std::string>(
          "--max-size", [this](const std::string& text) { prune_.max_size = parse_size(text, "--max-size"); },
          "The oldest, until the others have at most this size: 500MB, 10GB")
      ->type_name("SIZE");
  add_states(*prune, prune_.states, "Look only at runs in these states", {kStates.begin() + 1, kStates.end()});
  prune->add_flag("-y,--yes", prune_.yes, "Do not ask");
  prune->add_flag("--dry-run", prune_.dry_run, "Only show what would be deleted");
  prune->add_flag("--json", prune_.json, "Print a JSON array of the runs; needs --yes or --dry-run");
  prune->callback([this] { command_ = [this] { return cli::prune(prune_); }; });
}

void CommandLine::add_logs() {
  CLI::App* logs = add(app_, "logs", "Print what the workers of a run printed",
                       "  lockstep logs digits-1              all ranks, one after the other\n"
                       "  lockstep logs ./results/digits-1    a run by its directory\n"
                       "  lockstep logs digits-1 --rank 0     one rank, unchanged\n"
                       "  lockstep logs digits-1 -f           continue until the run ends");
  logs->add_option("RUN", logs_.run, "A run's directory, or its name")->required()->type_name("");
  logs->add_option("--rank", logs_.rank, "Only this rank")->type_name("N")->check([](const std::string& text) {
    const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? "" : "\"" + text + "\" is not a rank; ranks are 0, 1, 2, ...";
  });
  logs->add_flag("-f,--follow", logs_.follow, "Continue printing until the run ends");
  logs->callback([this] { command_ = [this] { return cli::logs(logs_); }; });
}

void CommandLine::add_checkpoint() {
  CLI::App* checkpoint = add(app_, "checkpoint", "List or verify checkpoints",
                             "  lockstep checkpoint list digits-1\n"
                             "  lockstep checkpoint verify digits-1");
  checkpoint->require_subcommand(1);
  CLI::App* list = add(*checkpoint, "list", "List a run's checkpoints", "  lockstep checkpoint list digits-1");
  list->add_option("RUN", run_, "A run's directory, or its name")->required()->type_name("");
  list->callback([this] { command_ = [this] { return list_checkpoints(run_); }; });
  CLI::App* verify = add(*checkpoint, "verify", "Check every file's size and hash; exit code 1 if one is wrong",
                         "  lockstep checkpoint verify digits-1\n"
                         "  lockstep checkpoint verify ./digits-1/checkpoint_000003");
  verify->add_option("PATH", run_, "A run or a checkpoint: a directory, or a name")->required()->type_name("");
  verify->callback([this] { command_ = [this] { return verify_checkpoints(run_); }; });
}

void CommandLine::add_new() {
  CLI::App* create = add(app_, "new", "Write a project to start from", "  lockstep new cpp my_training");
  create->require_subcommand(1);
  CLI::App* cpp = add(*create, "cpp", "Write a C++ project that trains a LibTorch model",
                      "  lockstep new cpp my_training          in a new directory; the project has its name\n"
                      "  lockstep new cpp ~/models/classifier  somewhere else\n"
                      "\n"
                      "Then, in that directory:\n"
                      "  cmake -S . -B build\n"
                      "  cmake --build build -j 2\n"
                      "  ./build/my_training");
  cpp->add_option("NAME", project_, "The project's name, or a path that ends with it")->required()->type_name("");
  cpp->callback([this] { command_ = [this] { return new_cpp(project_); }; });
}

void CommandLine::add_completion() {
  CLI::App* completion = add(app_, "completion", "Print a script that completes commands and run names in a shell",
                             "  source <(lockstep completion bash)    in ~/.bashrc\n"
                             "  source <(lockstep completion zsh)     in ~/.zshrc, after compinit\n"
                             "  lockstep completion fish > ~/.config/fish/completions/lockstep.fish");
  completion->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([this] { command_ = [this] { return cli::completion(shell_); }; });
}

int CommandLine::execute(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::Success& done) {
    if (!command_) return app_.exit(done);
  } catch (const CLI::ParseError& error) {
    return app_.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return command_();
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  try {
    lockstep::cli::CommandLine command_line;
    const int code = command_line.execute(argc, argv);
    if (std::fflush(stdout) != 0) throw lockstep::StorageError("[output] standard output cannot be written");
    return code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "lockstep: %s\n", lockstep::printable(error.what()).c_str());
    const bool is_usage = dynamic_cast<const lockstep::cli::UsageError*>(&error) != nullptr;
    return is_usage ? lockstep::cli::kWrongUsage : lockstep::cli::kFailed;
  }
}
