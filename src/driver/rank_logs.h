#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "sys/files.h"

namespace lockstep::driver {

/// logs/rank_N.log: what every worker printed, whole, across attempts. Also remembers each rank's last lines.
/// Throws StorageError when the disk refuses.
class RankLogs {
 public:
  /// Opens (appends to) the files of all ranks below `directory`, which exists; an empty one: no files.
  RankLogs(const std::filesystem::path& directory, int ranks, sys::Files& files = sys::files());

  /// Marks the attempt and its time in the files, by a line of its own. Last lines are those of the attempt.
  void begin_attempt(int attempt, WallTime time);
  void append(int rank, std::string_view text);
  /// The last lines that a rank printed, oldest first, an unfinished one too.
  std::vector<std::string> last_lines(int rank) const;
  /// What the rank printed from Python's "Fatal Python error" on, stacks and all; empty when it did not crash so.
  const std::string& crash(int rank) const { return logs_.at(static_cast<std::size_t>(rank)).crash; }

 private:
  struct Log {
    std::filesystem::path path;
    sys::Descriptor file;
    bool within_line = false;  ///< its last line has no end yet
    std::deque<std::string> lines;
    std::string rest;
    std::string crash;
  };
  static void write(Log& log, std::string_view text);
  static void add_line(Log& log, std::string line);

  std::vector<Log> logs_;
};

}  // namespace lockstep::driver
