#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output_style.h"
#include "sys/descriptor.h"

namespace lockstep::cli {

/// Prints the log files of a run's ranks, logs/rank_N.log, as they grow. With all ranks, every line begins with "[rank
/// N] "; a single rank is printed unchanged. Throws StorageError.
class LogFollower {
 public:
  LogFollower(std::filesystem::path run, std::optional<int> rank, const OutputStyle& style)
      : run_(std::move(run)), rank_(rank), style_(style) {}

  /// Prints the files one after the other.
  void print_all();
  /// The same, and then prints what is appended until the run has ended or its driver is gone. Waits for file changes;
  /// does not poll.
  void follow();

  bool has_files() const { return !logs_.empty(); }
  /// All ranks that have a log, whether they are printed or not.
  std::vector<int> ranks_on_disk() const;

 private:
  struct Log {
    sys::Descriptor file;
    std::string unfinished;  ///< the start of a line, not printed yet
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
  OutputStyle style_;
  std::map<int, Log> logs_;
};

}  // namespace lockstep::cli
