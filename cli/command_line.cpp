#include "command_line.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "python.h"

namespace lockstep::cli {
namespace {

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

}  // namespace

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

}  // namespace lockstep::cli
