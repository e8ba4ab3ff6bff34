#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sys/descriptor.h"
#include "terminal.h"

namespace lockstep::cli {

/// Prints the log files of a run's ranks, logs/rank_N.log, as they grow. With all ranks every line begins with "[rank
/// N] "; one rank alone is printed byte by byte. Throws StorageError.
class LogFollower {
 public:
  LogFollower(std::filesystem::path run, std::optional<int> rank, const Terminal& terminal)
      : run_(std::move(run)), rank_(rank), terminal_(terminal) {}

  /// What the files hold, file by file.
  void print_all();
  /// The same, and what they get until the run has ended or its driver is gone. Sleeps in between: the kernel tells
  /// what changes.
  void follow();

  bool has_files() const { return !logs_.empty(); }
  /// All ranks that have a log, whether they are printed or not.
  std::vector<int> ranks_on_disk() const;

 private:
  struct Log {
    sys::Descriptor file;
    std::string unfinished;  ///< a line's beginning, not printed yet
    std::string prefix;
  };

  void open_new_files();
  void end_line(Log& log);
  void print_new(Log& log, const std::filesystem::path& path);
  void print(Log& log, std::string_view text);
  std::filesystem::path log_path(int rank) const;
  int watch(int inotify) const;

  std::filesystem::path run_;
  std::optional<int> rank_;
  Terminal terminal_;
  std::map<int, Log> logs_;
};

}  // namespace lockstep::cli
