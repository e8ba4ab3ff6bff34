#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::driver {

/// logs/rank_N.log: what every worker printed, whole, across attempts. Also remembers each rank's last lines.
/// Throws StorageError when the disk refuses.
class RankLogs {
 public:
  /// Opens (appends to) the files of all ranks below `directory`, which exists; an empty one: no files.
  RankLogs(const std::filesystem::path& directory, int ranks);

  /// Last lines are those of the attempt; the files go on.
  void begin_attempt();
  void append(int rank, std::string_view text);
  /// The last lines that a rank printed, oldest first, an unfinished one too.
  std::vector<std::string> last_lines(int rank) const;
  /// What the rank printed from Python's "Fatal Python error" on, stacks and all; empty when it did not crash so.
  const std::string& crash(int rank) const { return logs_.at(static_cast<std::size_t>(rank)).crash; }

 private:
  struct Log {
    std::filesystem::path path;
    sys::Descriptor file;
    std::deque<std::string> lines;
    std::string rest;
    std::string crash;
  };
  static void add_line(Log& log, std::string line);

  std::vector<Log> logs_;
};

}  // namespace lockstep::driver
