#pragma once

#include <lockstep/error.h>

#include <optional>
#include <string>
#include <vector>

/// The commands of `lockstep`: each is one file, prints to standard output and returns the exit code. They throw
/// lockstep::Error, which main() prints. Only main.cpp knows the parser.
namespace lockstep::cli {

/// The command line itself is wrong: exit code 2.
struct UsageError : ConfigError {
  using ConfigError::ConfigError;
};

/// Becomes the Python interpreter that runs the script `arguments[0]`, or the module after `-m`, with the rest: the one
/// beside this executable (a virtual environment's), else python3 in PATH. `as_ray`: the release of Ray that the script
/// is written for; empty: what LOCKSTEP_AS_RAY says. Returns only by throwing.
int run(const std::vector<std::string>& arguments, const std::string& as_ray);

struct RunsOptions {
  std::string path;                  ///< a run, as store::find_run; else a directory of runs; empty: the default one
  std::vector<std::string> states;   ///< only runs in one of these; empty: in any
  std::optional<std::size_t> limit;  ///< only that many, the newest
  bool json = false;
};
/// A table of runs, newest first; or a JSON array.
int runs(const RunsOptions& options);

struct StopOptions {
  std::string run;      ///< as store::find_run
  double timeout = 60;  ///< seconds
  bool kill = false;    ///< at once, by SIGKILL
};
/// Ends a running run as Ctrl-C does, and waits for its end.
int stop(const StopOptions& options);

struct PruneOptions {
  std::string path;                  ///< as of RunsOptions
  std::optional<double> older_than;  ///< seconds since the last sign of life
  std::optional<std::size_t> keep;   ///< that many stay, the newest
  std::optional<double> max_size;    ///< bytes that all may have together
  std::vector<std::string> states;   ///< only these are looked at; empty: all that can be read
  bool yes = false;                  ///< do not ask
  bool dry_run = false;              ///< only show
};
/// Deletes the runs that every criterion lets go, after the user has seen them and agreed; never one that runs, is
/// another user's, or is a link. 1 when the user disagreed or one could not be deleted.
int prune(const PruneOptions& options);

struct LogsOptions {
  std::string run;          ///< as store::find_run
  std::optional<int> rank;  ///< nothing: all
  bool follow = false;      ///< go on until the run ends
};
/// What the workers printed.
int logs(const LogsOptions& options);

/// A table of the run's checkpoints.
int list_checkpoints(const std::string& run);
/// Compares a checkpoint, or all of a run, with the manifests; 1 when one is not whole.
int verify_checkpoints(const std::string& run_or_checkpoint);

/// Writes a C++ project that trains with LibTorch into a directory that is new or empty, and prints how to build it;
/// the project is called as the directory. On an error nothing is left there.
int new_cpp(const std::string& name_or_path);

/// Prints the directory of the CMake package: that of the environment that this executable is in, else that of the
/// package `lockstep` that Python finds.
int cmake_dir();

/// The completion script of "bash", "zsh" or "fish".
int completion(const std::string& shell);

}  // namespace lockstep::cli
