#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sys/files.h"

namespace lockstep::driver {

/// Writes logs/rank_N.log: everything that each worker printed, in all attempts. Also remembers each rank's last lines.
/// Throws StorageError if a file cannot be written.
class RankLogs {
 public:
  /// The files are in `directory`, which exists; if it is empty, there are no files. Only a few are open at a time.
  explicit RankLogs(std::filesystem::path directory, sys::Files& files = sys::files())
      : directory_(std::move(directory)), files_(files) {}

  /// Writes a line with the attempt and its time into the files of its ranks. last_lines() is then empty.
  void begin_attempt(int attempt, int ranks, WallTime time);
  void append(int rank, std::string_view text);
  /// The last lines that a rank printed, oldest first, including an unfinished one.
  std::vector<std::string> last_lines(int rank) const;
  /// What the rank printed from Python's "Fatal Python error" on, with the stacks; empty if it did not crash like that.
  const std::string& crash(int rank) const { return logs_.at(static_cast<std::size_t>(rank)).crash; }

 private:
  struct Log {
    std::filesystem::path path;
    sys::Descriptor file;
    std::optional<bool> within_line;  ///< whether its last line is incomplete; nothing: not known yet
    std::deque<std::string> lines;
    std::string rest;
    std::string crash;
  };
  void open(int rank);
  void write(int rank, std::string_view text);
  static void add_line(Log& log, std::string line);

  std::filesystem::path directory_;
  sys::Files& files_;
  std::vector<Log> logs_;
  std::deque<int> open_;  ///< ranks whose files are open, in the order of opening
};

}  // namespace lockstep::driver
