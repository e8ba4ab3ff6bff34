#include "driver/rank_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <lockstep/error.h>

#include "base/ids.h"

namespace lockstep::driver {
namespace {

constexpr std::size_t kLines = 20;
/// At most this many files are open. Beyond that, the one opened first is closed, and opened again when its rank
/// prints.
constexpr std::size_t kMostOpen = 32;
constexpr std::size_t kLongestKept = 2000;
constexpr std::size_t kLongestCrash = 64 << 10;

/// Whether the last line of an existing file is incomplete, because its driver was killed.
bool ends_within_a_line(const std::filesystem::path& path) {
  const sys::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char last = '\n';
  const off_t size = file ? ::lseek(file.get(), 0, SEEK_END) : 0;
  return size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

void RankLogs::begin_attempt(int attempt, int ranks, WallTime time) {
  const std::string mark = "==== attempt " + std::to_string(attempt) + ", " + time_string(time) + " ====\n";
  if (logs_.size() < static_cast<std::size_t>(ranks)) logs_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Log& log = logs_[static_cast<std::size_t>(rank)];
    log.lines.clear();
    log.rest.clear();
    log.crash.clear();
    if (directory_.empty()) continue;
    open(rank);
    write(rank, *log.within_line ? "\n" + mark : mark);
  }
}

void RankLogs::open(int rank) {
  Log& log = logs_.at(static_cast<std::size_t>(rank));
  if (log.file) return;
  log.path = directory_ / ("rank_" + std::to_string(rank) + ".log");
  if (!log.within_line) log.within_line = ends_within_a_line(log.path);
  log.file = files_.open(log.path, sys::OpenMode::append).fd;
  open_.push_back(rank);
  if (open_.size() <= kMostOpen) return;
  logs_[static_cast<std::size_t>(open_.front())].file.reset();
  open_.pop_front();
}

void RankLogs::write(int rank, std::string_view text) {
  open(rank);
  Log& log = logs_[static_cast<std::size_t>(rank)];
  if (!text.empty()) log.within_line = !text.ends_with('\n');
  while (!text.empty()) {
    const ssize_t written = ::write(log.file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw StorageError("[logs] cannot write " + log.path.string() + ": " + strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RankLogs::append(int rank, std::string_view text) {
  Log& log = logs_.at(static_cast<std::size_t>(rank));
  if (!directory_.empty()) write(rank, text);
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    add_line(log, (log.rest + std::string(text.substr(0, end))).substr(0, kLongestKept));
    log.rest.clear();
  }
  if (log.rest.size() < kLongestKept) log.rest += text;
}

void RankLogs::add_line(Log& log, std::string line) {
  if (const auto begin = line.find("Fatal Python error: "); begin != std::string::npos)
    log.crash = line.substr(begin) + "\n";
  else if (!log.crash.empty() && log.crash.size() < kLongestCrash)
    log.crash += line + "\n";
  log.lines.push_back(std::move(line));
  if (log.lines.size() > kLines) log.lines.pop_front();
}

std::vector<std::string> RankLogs::last_lines(int rank) const {
  const Log& log = logs_.at(static_cast<std::size_t>(rank));
  std::vector<std::string> lines(log.lines.begin(), log.lines.end());
  if (!log.rest.empty()) lines.push_back(log.rest.substr(0, kLongestKept));
  return lines;
}

}  // namespace lockstep::driver
