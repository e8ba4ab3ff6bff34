#pragma once

#include <lockstep/error.h>

#include <optional>
#include <string>
#include <vector>

/// The commands of `lockstep`: each is one file, prints to standard output and returns the exit code. They throw
/// lockstep::Error, which main() prints. Only main.cpp knows the parser.
namespace lockstep::cli {

/// Wrong usage of the command line: exit code 2.
struct UsageError : ConfigError {
  using ConfigError::ConfigError;
};

/// Options of `lockstep run` about nodes. They reach the script as LOCKSTEP_ENGINE and LOCKSTEP_ENGINE_OPTIONS.
struct EngineOptions {
  std::string engine;  ///< empty: not given
  std::string hosts;   ///< "a:8,b:8"
  std::string hostfile, address, secret_file, network_interface;
  std::optional<int> nodes, port;
  std::optional<double> node_timeout, start_timeout, replace_timeout;  ///< seconds
  bool head_is_idle = false;                                           ///< the driver's node takes no workers
};
/// Sets the variables. Throws UsageError for options that do not go together.
void set_engine(const EngineOptions& options);

/// Replaces this process by the check of the nodes of the engine that is set. Returns only by throwing.
[[noreturn]] void check_cluster();

/// Replaces this process by the Python interpreter that runs the script `arguments[0]`, or the module after `-m`, with
/// the other arguments: the interpreter next to this executable (of a virtual environment), otherwise python3 in PATH.
/// `as_ray` is the release of Ray that the script is written for; empty: that of LOCKSTEP_AS_RAY. Returns only by
/// throwing.
int run(const std::vector<std::string>& arguments, const std::string& as_ray);

/// Replaces this process by the agent with these arguments: `--join HOST:PORT --secret-file FILE` and more. Returns
/// only by throwing.
int agent(const std::vector<std::string>& arguments);

/// Writes a batch script NAME.sbatch and submits it: `words` are options of sbatch, then the script that `lockstep run`
/// runs, and its arguments. Prints the job's id and how to follow it.
int submit_slurm(const std::vector<std::string>& words);

struct RunsOptions {
  std::string path;                  ///< a run (see store::find_run) or a directory of runs; empty: the default one
  std::vector<std::string> states;   ///< only runs in one of these states; empty: all
  std::optional<std::size_t> limit;  ///< only this many of the newest
  bool json = false;
};
/// A table of runs, newest first; or a JSON array.
int runs(const RunsOptions& options);

struct DashboardOptions {
  std::string path;         ///< a run, an experiment, or a directory of them (see RunsOptions); empty: the default one
  std::string host;         ///< empty: the loopback
  std::optional<int> port;  ///< nothing: 8484, or the next free one
  std::string cert, key;    ///< PEM files
};
/// Replaces this process by the dashboard's server. Returns only by throwing.
int dashboard(const DashboardOptions& options);

struct StopOptions {
  std::string run;      ///< found by store::find_run
  double timeout = 60;  ///< seconds
  bool kill = false;    ///< kill the driver at once with SIGKILL
};
/// Ends a running run as Ctrl-C does, but no other run of its process, and waits for its end.
int stop(const StopOptions& options);

struct PruneOptions {
  std::string path;                  ///< as in RunsOptions
  std::optional<double> older_than;  ///< seconds since the last update
  std::optional<std::size_t> keep;   ///< keep this many of the newest
  std::optional<double> max_size;    ///< maximum size of all runs together, in bytes
  std::vector<std::string> states;   ///< only consider runs in these states; empty: all that can be read
  bool yes = false;                  ///< do not ask
  bool dry_run = false;              ///< only show
  bool json = false;                 ///< print a JSON array; needs `yes` or `dry_run`
};
/// Deletes the runs that all criteria select, after the user has seen them and agreed; never one that is running,
/// belongs to another user, or is a link. Returns 1 if the user declined or a run could not be deleted.
int prune(const PruneOptions& options);

struct LogsOptions {
  std::string run;          ///< found by store::find_run
  std::optional<int> rank;  ///< nothing: all
  bool follow = false;      ///< continue until the run ends
};
/// Prints the output of the workers.
int logs(const LogsOptions& options);

/// A table of the run's checkpoints.
int list_checkpoints(const std::string& run);
/// Compares a checkpoint, or all of a run, with their manifests; returns 1 if one is damaged.
int verify_checkpoints(const std::string& run_or_checkpoint);

/// Writes a C++ project that trains with LibTorch into a new or empty directory, and prints how to build it; the
/// project has the directory's name. On an error nothing is left there.
int new_cpp(const std::string& name_or_path);

/// Prints the directory of the CMake package: that of this executable's environment, otherwise that of the package
/// `lockstep` that Python finds.
int cmake_dir();

struct TuneShowOptions {
  std::string experiment;            ///< a directory, or a name in the default storage path
  std::string metric;                ///< of the best trial; empty: the experiment's first
  std::string mode;                  ///< "min" or "max"; empty: the experiment's, else "min"
  std::string sort;                  ///< a metric, or "trial": by number; empty: as `metric`
  std::optional<std::size_t> limit;  ///< rows; nothing: 20, or all in JSON
  bool json = false;
};
/// A table of an experiment's trials, the best, failures, and how to go on; or a JSON object. Reads only, also while
/// the experiment runs.
int tune_show(const TuneShowOptions& options);

struct TunePlotOptions {
  std::string experiment;          ///< as in TuneShowOptions
  std::vector<std::string> kinds;  ///< see tune::PlotOptions; empty: all that the experiment has data for
  std::string output;              ///< a file (for one kind), or a directory; empty: plots/ in the experiment's
  std::string metric, mode;        ///< as in TuneShowOptions
  std::string x, y;                ///< as in tune::PlotOptions
};
/// Writes plots as HTML pages and prints their paths.
int tune_plot(const TunePlotOptions& options);

/// The completion script of "bash", "zsh" or "fish".
int completion(const std::string& shell);

}  // namespace lockstep::cli
