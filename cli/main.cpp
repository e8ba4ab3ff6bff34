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
#include "python.h"
#include "quantities.h"
#include "run_summary.h"

namespace lockstep::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct RunFormatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: lockstep run [-h] [--as-ray[=RELEASE]] [--dry-run] SCRIPT [ARGS...]\n"
           "       lockstep run [-h] [--as-ray[=RELEASE]] [--dry-run] -m MODULE [ARGS...]\n"
           "       lockstep run [--as-ray[=RELEASE]] -n N [OPTIONS] SCRIPT|-m MODULE [ARGS...]\n";
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

void add_count(CLI::App& command, const char* name, std::optional<std::size_t>& count, const char* what) {
  command.add_option(name, count, what)->type_name("N")->check([](const std::string& text) {
    const bool is_count = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == text.npos;
    return is_count ? "" : "\"" + text + "\" is not a whole number of 0 or more";
  });
}

/// The parser and the values of its options; `command` runs the chosen subcommand.
class CommandLine {
 public:
  CommandLine();
  int execute(int argc, char** argv);

 private:
  void add_run();
  void add_engine(CLI::App& command);
  void add_cluster();
  void add_agent();
  void add_submit();
  void add_runs();
  void add_dashboard();
  void add_stop();
  void add_prune();
  void add_logs();
  void add_checkpoint();
  void add_tune();
  void add_new();
  void add_tools();
  void add_tool(CLI::App& parent, const char* name, const char* module, const char* what, const char* examples);
  void add_completion();
  CLI::App* add(CLI::App& parent, const char* name, const char* what, const char* examples);

  CLI::App app_{"Lockstep: train one function on many workers.", "lockstep"};
  std::function<int()> command_;
  std::string run_, project_, shell_, as_ray_;
  EngineOptions engine_;
  RunsOptions runs_;
  DashboardOptions dashboard_;
  StopOptions stop_;
  PruneOptions prune_;
  LogsOptions logs_;
  TuneShowOptions tune_show_;
  TunePlotOptions tune_plot_;
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
      "  lockstep run -n 4 train.py           run a script written for torchrun on 4 workers\n"
      "  lockstep submit slurm -N 4 train.py  the same as a job on four nodes\n"
      "  lockstep runs                        all runs and their states\n"
      "  lockstep dashboard                   the same in a browser, live\n"
      "  lockstep stop digits-1               end a run, keep its last checkpoint\n"
      "  lockstep prune --older-than 30d      delete old runs; asks first\n"
      "  lockstep logs digits-1 --rank 2 -f   follow the output of rank 2\n"
      "  lockstep checkpoint verify digits-1  check all its checkpoints\n"
      "  lockstep tune show search-1          the trials of an experiment, the best first\n"
      "  lockstep new python my_training      a project to start from; also C++\n"
      "  lockstep doctor                      what is there, what is missing, and what to do\n"
      "\n"
      "Runs are stored in LOCKSTEP_STORAGE_PATH (default: ~/lockstep_results).");
  add_run();
  add_cluster();
  add_agent();
  add_submit();
  add_runs();
  add_dashboard();
  add_stop();
  add_prune();
  add_logs();
  add_checkpoint();
  add_tune();
  add_new();
  add_tools();
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
                      "  lockstep run --as-ray train.py       a script written for Ray; --as-ray=2.0 for that release\n"
                      "  lockstep run --engine ssh --hosts a:8,b:8 train.py\n"
                      "  lockstep run -n 4 train.py           a script written for torchrun, on 4 workers\n"
                      "\n"
                      "Options for scripts written for torchrun, with its meanings:\n"
                      "  -n, --nproc-per-node N|auto|gpu|cpu  the number of workers\n"
                      "  --max-restarts N                     how often all are started again after a failure\n"
                      "  --nnodes MIN:MAX, --standalone       MIN must be 1: this machine\n"
                      "  -r, --redirects, -t, --tee STREAMS   0, 1 (stdout), 2 (stderr) or 3; 0:1,1:3 by local rank\n"
                      "  --local-ranks-filter RANKS           whose output is shown: 0,1\n"
                      "  --log-dir DIR, --rdzv-id ID, --role ROLE, --no-python, --run-path\n"
                      "and of Lockstep:\n"
                      "  --fast-collectives                   the backend \"gloo\" becomes \"lockstep\"\n"
                      "  --name NAME, --storage-path DIR      of the run's directory\n"
                      "  --hang-timeout SECONDS               a rank without progress fails\n"
                      "  --dry-run                            print what would be done");
  // The script's own options must reach it unparsed, so the script is not an option of ours.
  run->prefix_command();
  run->formatter(std::make_shared<RunFormatter>());
  // A flag with a value, so that the script after it is not taken as the release.
  run->add_flag("--as-ray{1}", as_ray_,
                "Let `import ray` be Lockstep: release 1.7, 2.0, 2.6, 2.7 or 2.60 (default: what the script uses)")
      ->check([](const std::string& release) -> std::string {
        if (release == "1") return "";  // without a value
        return CLI::IsMember({"1.7", "2.0", "2.6", "2.7", "2.60"})(release);
      });
  add_engine(*run);
  run->callback([this, run] {
    command_ = [this, run] {
      set_engine(engine_);
      return cli::run(run->remaining(), as_ray_);
    };
  });
}

void CommandLine::add_engine(CLI::App& command) {
  const auto add_text = [&](const char* name, std::string& text, const char* type, const char* what) {
    command.add_option(name, text, what)->type_name(type)->group("Nodes");
  };
  add_text("--engine", engine_.engine, "ENGINE", "auto (default), local, slurm, ray, ssh or join");
  add_text("--hosts", engine_.hosts, "A:8,B:8", "ssh: the hosts, and how many workers each has room for");
  add_text("--hostfile", engine_.hostfile, "FILE", "ssh: the same as a file with lines such as `a slots=8`");
  add_text("--address", engine_.address, "ADDRESS", "ray: the cluster's (default: RAY_ADDRESS, or this machine's)");
  command.add_option("--nodes", engine_.nodes, "How many nodes, the driver's own included (join: 2; others: all)")
      ->type_name("N")
      ->group("Nodes");
  command.add_option("--port", engine_.port, "Where the driver's agent listens (join: 29400)")
      ->type_name("PORT")
      ->group("Nodes");
  add_text("--secret-file", engine_.secret_file, "FILE", "join: the run's secret; made if it does not exist");
  add_text("--network-interface", engine_.network_interface, "NAME", "For everything between nodes: eth0");
  command.add_flag("--head-idle", engine_.head_is_idle, "The driver's node takes no workers")->group("Nodes");
  add_duration(command, "--node-timeout", "s", engine_.node_timeout, "A node silent for this long is lost (5s)");
  add_duration(command, "--start-timeout", "s", engine_.start_timeout, "For all nodes to join (300s)");
  add_duration(command, "--replace-timeout", "s", engine_.replace_timeout, "For a node in place of a lost one (30s)");
}

void CommandLine::add_cluster() {
  CLI::App* cluster =
      add(app_, "cluster", "Look at the nodes of an engine", "  lockstep cluster check --engine ssh --hosts a:8,b:8");
  cluster->require_subcommand(1);
  CLI::App* check = add(*cluster, "check", "Start agents, show nodes, versions and the network between them, and end",
                        "  lockstep cluster check --engine ssh --hosts a:8,b:8\n"
                        "  lockstep cluster check               in an allocation of Slurm");
  add_engine(*check);
  check->callback([this] {
    command_ = [this]() -> int {
      set_engine(engine_);
      check_cluster();
    };
  });
}

void CommandLine::add_agent() {
  CLI::App* agent = add(app_, "agent", "Run workers on this machine for a run whose driver is on another",
                        "  lockstep agent --join head:29400 --secret-file /run/secrets/lockstep");
  // The agent parses its options, because engines start it without this command.
  agent->prefix_command();
  agent->set_help_flag();
  agent->callback([this, agent] { command_ = [agent] { return cli::agent(agent->remaining()); }; });
}

void CommandLine::add_submit() {
  CLI::App* submit =
      add(app_, "submit", "Submit a script as a job of a cluster", "  lockstep submit slurm -N 4 train.py");
  submit->require_subcommand(1);
  CLI::App* slurm =
      add(*submit, "slurm", "Write a batch script, submit it with sbatch, and say how to follow the job",
          "  lockstep submit slurm -N 4 train.py\n"
          "  lockstep submit slurm -N 4 --gpus-per-node=8 -t 12:00:00 train.py --epochs 10\n"
          "  lockstep submit slurm -N 2 -- -m project.train    what follows -- is for `lockstep run`\n"
          "\n"
          "Everything before the script are options of sbatch, everything after it is passed to it. The batch\n"
          "script is NAME.sbatch in this directory.");
  slurm->prefix_command();
  slurm->callback([this, slurm] { command_ = [slurm] { return submit_slurm(slurm->remaining()); }; });
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
  add_count(*runs, "--limit", runs_.limit, "Only the N newest");
  runs->add_flag("--json", runs_.json, "Print a JSON array");
  runs->callback([this] { command_ = [this] { return cli::runs(runs_); }; });
}

void CommandLine::add_dashboard() {
  CLI::App* dashboard = add(app_, "dashboard", "Show runs and experiments in a browser, live",
                            "  lockstep dashboard                     those in the default storage path\n"
                            "  lockstep dashboard /scratch/runs       those below a directory\n"
                            "  lockstep dashboard digits-1            one run\n"
                            "  lockstep dashboard --port 9000\n"
                            "  lockstep dashboard --host 10.0.0.5     for other machines, over TLS\n"
                            "\n"
                            "It prints the address to open, only reads, and ends with Ctrl-C.");
  dashboard
      ->add_option("PATH", dashboard_.path, "A run or experiment, or a directory of them (default: ~/lockstep_results)")
      ->type_name("");
  dashboard
      ->add_option("--host", dashboard_.host,
                   "Listen on this address (default: loopback, for this machine alone); others use TLS")
      ->type_name("HOST");
  dashboard->add_option("--port", dashboard_.port, "Listen on this port; 0: any free one (default: 8484 or the next)")
      ->type_name("N")
      ->check(CLI::Range(0, 65535));
  CLI::Option* cert =
      dashboard->add_option("--cert", dashboard_.cert, "The certificate for TLS, a PEM file; without it one is made")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* key =
      dashboard->add_option("--key", dashboard_.key, "Its private key")->type_name("FILE")->check(CLI::ExistingFile);
  cert->needs(key);
  key->needs(cert);
  dashboard->callback([this] { command_ = [this] { return cli::dashboard(dashboard_); }; });
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
  add_count(*prune, "--keep", prune_.keep, "All but the N newest");
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

void CommandLine::add_tune() {
  CLI::App* tune = add(app_, "tune", "Look at experiments",
                       "  lockstep tune show search-1    its trials, the best first\n"
                       "  lockstep tune plot search-1    plots as web pages");
  tune->require_subcommand(1);
  const auto add_goal = [](CLI::App& command, std::string& metric, std::string& mode) {
    command.add_option("--metric", metric, "Compare trials by this metric (default: the experiment's)")
        ->type_name("NAME");
    command.add_option("--mode", mode, "Which value of it is best (default: the experiment's)")
        ->type_name("min|max")
        ->check(CLI::IsMember({"min", "max"}));
  };
  CLI::App* show = add(*tune, "show", "List trials: their state, parameters and last metrics",
                       "  lockstep tune show search-1                  the best first\n"
                       "  lockstep tune show search-1 --sort trial     in the order they were chosen\n"
                       "  lockstep tune show search-1 --metric accuracy --mode max --limit 5\n"
                       "  lockstep tune show ./results/search-1 --json  for programs: a JSON object\n"
                       "\n"
                       "It only reads, also while the experiment runs.");
  show->add_option("PATH", tune_show_.experiment, "An experiment's directory, or its name")->required()->type_name("");
  add_goal(*show, tune_show_.metric, tune_show_.mode);
  show->add_option("--sort", tune_show_.sort, "Sort by this metric, or by `trial` number (default: the best first)")
      ->type_name("NAME");
  add_count(*show, "--limit", tune_show_.limit, "At most N trials (default: 20; with --json all)");
  show->add_flag("--json", tune_show_.json, "Print a JSON object");
  show->callback([this] { command_ = [this] { return cli::tune_show(tune_show_); }; });

  CLI::App* plot = add(*tune, "plot", "Write plots of an experiment as web pages",
                       "  lockstep tune plot search-1                          all kinds, into its directory plots/\n"
                       "  lockstep tune plot search-1 importance --output importance.html\n"
                       "  lockstep tune plot search-1 contour --x lr --y momentum\n"
                       "  lockstep tune plot search-1 history parallel --output pages --metric accuracy --mode max\n"
                       "\n"
                       "Pages need no network. `lockstep.tune.plot` in Python also writes PNG files.");
  plot->add_option("PATH", tune_plot_.experiment, "An experiment's directory, or its name")->required()->type_name("");
  plot->add_option("KIND", tune_plot_.kinds, "history, parallel, importance, contour, pareto (default: all that fit)")
      ->type_name("")
      ->check(CLI::IsMember({"history", "parallel", "importance", "contour", "pareto"}));
  plot->add_option("-o,--output", tune_plot_.output, "A directory, or for one kind a file that ends with .html")
      ->type_name("PATH");
  add_goal(*plot, tune_plot_.metric, tune_plot_.mode);
  plot->add_option("--x", tune_plot_.x, "Parameter of a contour, or metric of a Pareto front")->type_name("NAME");
  plot->add_option("--y", tune_plot_.y, "The other one")->type_name("NAME");
  plot->callback([this] { command_ = [this] { return cli::tune_plot(tune_plot_); }; });
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
  add_tool(*create, "python", "lockstep._new_python", "Write a Python project that trains a model",
           "  lockstep new python my_training                        PyTorch\n"
           "  lockstep new python my_training --framework lightning  or tensorflow, jax, transformers, xgboost, plain\n"
           "\n"
           "Then, in that directory: lockstep run train.py");
}

/// Commands that the Python package implements: they need its interpreter's modules. They parse their options.
void CommandLine::add_tool(CLI::App& parent, const char* name, const char* module, const char* what,
                           const char* examples) {
  CLI::App* tool = add(parent, name, what, examples);
  tool->prefix_command();
  tool->callback([this, tool, name, module] {
    command_ = [tool, name, module] {
      std::vector<std::string> words{"-m", module};
      const auto given = tool->remaining();
      words.insert(words.end(), given.begin(), given.end());
      become_python(name, std::move(words));
      return 0;
    };
  });
}

void CommandLine::add_tools() {
  add_tool(app_, "doctor", "lockstep._doctor", "Check this machine and installation, and say what to do",
           "  lockstep doctor           everything\n"
           "  lockstep doctor --json    for programs: a JSON array");
  add_tool(app_, "bench", "lockstep._bench", "Measure Lockstep on this machine",
           "  lockstep bench                   all parts\n"
           "  lockstep bench start recovery    some: start recovery report checkpoint torch\n"
           "  lockstep bench --json            for programs: a JSON array");
  add_tool(app_, "man", "lockstep._man", "Print or install manual pages",
           "  lockstep man                                  the page of lockstep\n"
           "  lockstep man run                              of one command\n"
           "  lockstep man --output ~/.local/share/man/man1  all pages as files");
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
