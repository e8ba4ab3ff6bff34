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
constexpr std::size_t kLongestKept = 2000;
constexpr std::size_t kLongestCrash = 64 << 10;

/// Whether the last line of a file that was there before has no end: its driver was killed.
bool ends_within_a_line(const std::filesystem::path& path) {
  const sys::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char last = '\n';
  const off_t size = file ? ::lseek(file.get(), 0, SEEK_END) : 0;
  return size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

RankLogs::RankLogs(const std::filesystem::path& directory, int ranks, sys::Files& files) {
  for (int rank = 0; rank < ranks; ++rank) {
    Log log;
    if (directory.empty()) {
      logs_.push_back(std::move(log));
      continue;
    }
    log.path = directory / ("rank_" + std::to_string(rank) + ".log");
    log.within_line = ends_within_a_line(log.path);
    log.file = files.open(log.path, sys::OpenMode::append).fd;
    logs_.push_back(std::move(log));
  }
}

void RankLogs::begin_attempt(int attempt, WallTime time) {
  const std::string mark = "==== attempt " + std::to_string(attempt) + ", " + time_string(time) + " ====\n";
  for (Log& log : logs_) {
    if (log.file) write(log, log.within_line ? "\n" + mark : mark);
    log.lines.clear();
    log.rest.clear();
    log.crash.clear();
  }
}

void RankLogs::write(Log& log, std::string_view text) {
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
  if (log.file) write(log, text);
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
