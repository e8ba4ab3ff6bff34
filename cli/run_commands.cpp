// The commands that look at runs and experiments, or end or delete them.

#include <array>
#include <optional>

#include "command_line.h"
#include "run_summary.h"

namespace lockstep::cli {
namespace {

void add_states(CLI::App& command, std::vector<std::string>& states, const char* what,
                const std::vector<std::string>& known) {
  command.add_option("--state", states, what)
      ->type_name("STATE,...")
      ->delimiter(',')
      ->allow_extra_args(false)  // the next word is the path
      ->check(CLI::IsMember(known));
}

void add_count(CLI::App& command, const char* name, std::optional<std::size_t>& count, const char* what) {
  command.add_option(name, count, what)->type_name("N")->check([](const std::string& text) {
    const bool is_count = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == text.npos;
    return is_count ? "" : "\"" + text + "\" is not a whole number of 0 or more";
  });
}

}  // namespace

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

}  // namespace lockstep::cli
