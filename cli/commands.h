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

/// Replaces this process by the Python interpreter that runs the script `arguments[0]`, or the module after `-m`, with
/// the other arguments: the interpreter next to this executable (of a virtual environment), otherwise python3 in PATH.
/// `as_ray` is the release of Ray that the script is written for; empty: that of LOCKSTEP_AS_RAY. Returns only by
/// throwing.
int run(const std::vector<std::string>& arguments, const std::string& as_ray);

struct RunsOptions {
  std::string path;                  ///< a run (see store::find_run) or a directory of runs; empty: the default one
  std::vector<std::string> states;   ///< only runs in one of these states; empty: all
  std::optional<std::size_t> limit;  ///< only this many of the newest
  bool json = false;
};
/// A table of runs, newest first; or a JSON array.
int runs(const RunsOptions& options);

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

/// The completion script of "bash", "zsh" or "fish".
int completion(const std::string& shell);

}  // namespace lockstep::cli
