#pragma once

#include <optional>
#include <string>
#include <vector>

/// The commands of `lockstep`: each is one file, prints to standard output and returns the exit code. They throw
/// lockstep::Error, which main() prints. Only main.cpp knows the parser.
namespace lockstep::cli {

/// Becomes the Python interpreter that runs the script `arguments[0]` with the rest: the one beside this executable (a
/// virtual environment's), else python3 in PATH. `as_ray`: the release of Ray that the script is written for; empty:
/// what LOCKSTEP_AS_RAY says. Returns only by throwing.
int run(const std::vector<std::string>& arguments, const std::string& as_ray);

/// A table of the runs below `path`, newest first; `path` may be a run itself. Empty: the default storage path.
int runs(const std::string& path);

struct LogsOptions {
  std::string run;          ///< a directory, or a name below the default storage path
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
