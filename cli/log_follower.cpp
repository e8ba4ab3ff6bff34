#include "log_follower.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "run_summary.h"
#include "sys/files.h"
#include "sys/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = 64 * 1024;
/// A line that never ends is printed in pieces of about this size.
constexpr std::size_t kLongestLine = 1 << 20;

/// The rank of "rank_12.log"; nothing for other names.
std::optional<int> rank_of(std::string_view name) {
  constexpr std::string_view kBegin = "rank_", kEnd = ".log";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size())
    return std::nullopt;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return error == std::errc() && end == name.data() + name.size() && rank >= 0 ? std::optional(rank) : std::nullopt;
}

void print_bytes(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw StorageError("[logs] standard output cannot be written");
}

/// Readable when the driver has ended; empty if it cannot be watched from here.
sys::Descriptor watch_driver(const RunSummary& run) {
  if (run.state != "running") return {};
  if (run.view.driver == store::DriverState::alive) return sys::open_pidfd(run.record().driver.pid);
  std::fprintf(stderr,
               "lockstep: the run's driver is on %s; output is shown as far as its files are visible on this machine\n",
               printable(run.record().driver.hostname).c_str());
  return {};
}

/// Reads all events. Returns whether one is of `watch`, or some were lost.
bool take_events(int inotify, int watch) {
  bool found = false;
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (ssize_t size; (size = ::read(inotify, buffer.data(), buffer.size())) > 0;) {
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      found = found || event.wd == watch || (event.mask & IN_Q_OVERFLOW) != 0;
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
  }
  return found;
}

}  // namespace

fs::path LogFollower::log_path(int rank) const { return run_ / "logs" / ("rank_" + std::to_string(rank) + ".log"); }

std::vector<int> LogFollower::ranks_on_disk() const {
  std::vector<int> ranks;
  if (sys::files().info(run_ / "logs").kind != sys::FileKind::directory) return ranks;
  for (const auto& item : sys::files().list(run_ / "logs"))
    if (const auto rank = rank_of(item.name)) ranks.push_back(*rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void LogFollower::open_new_files() {
  for (const int rank : ranks_on_disk()) {
    if ((rank_ && *rank_ != rank) || logs_.contains(rank)) continue;
    Log& log = logs_[rank];
    log.file = std::move(sys::files().open(log_path(rank), sys::OpenMode::read).fd);
    if (!rank_) log.prefix = style_.paint(Colour::dim, "[rank " + std::to_string(rank) + "]") + " ";
  }
}

void LogFollower::print_all() {
  open_new_files();
  for (auto& [rank, log] : logs_) {
    print_new(log, log_path(rank));
    end_line(log);
  }
}

void LogFollower::print_new(Log& log, const fs::path& path) {
  std::string chunk(kChunk, '\0');
  for (;;) {
    const ssize_t count = ::read(log.file.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) sys::throw_file_error("read", path, errno);
    if (count == 0) return;
    print(log, std::string_view(chunk).substr(0, static_cast<std::size_t>(count)));
  }
}

void LogFollower::print(Log& log, std::string_view text) {
  if (log.prefix.empty()) return print_bytes(text);
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    log.unfinished += text.substr(0, end + 1);
    // A progress bar returns to the beginning of the line and overwrites the prefix, so repeat it.
    std::string line = log.prefix;
    for (std::size_t i = 0; i < log.unfinished.size(); ++i) {
      line += log.unfinished[i];
      if (log.unfinished[i] == '\r' && log.unfinished[i + 1] != '\n') line += log.prefix;
    }
    print_bytes(line);
    log.unfinished.clear();
  }
  log.unfinished += text;
  if (log.unfinished.size() > kLongestLine) print(log, "\n");
}

void LogFollower::end_line(Log& log) {
  if (!log.unfinished.empty()) print(log, "\n");
}

int LogFollower::watch(int inotify) const {
  // Watching a directory a second time only sets its mask again.
  const fs::path logs = run_ / "logs";
  if (::inotify_add_watch(inotify, logs.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0 &&
      errno != ENOENT)
    sys::throw_file_error("watch", logs, errno);
  // run.json is replaced by a rename. There is no event for the removal of the directory itself while we hold a file in
  // it open.
  const int watch =
      ::inotify_add_watch(inotify, run_.c_str(), IN_CREATE | IN_DELETE | IN_MOVE | IN_MOVE_SELF | IN_ONLYDIR);
  if (watch < 0 && errno != ENOENT) sys::throw_file_error("watch", run_, errno);
  return watch;
}

void LogFollower::follow() {
  const sys::Descriptor inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify) sys::throw_file_error("watch", run_, errno);
  const sys::Descriptor driver = watch_driver(read_run(run_));
  std::string state;
  int run_watch = -1;
  bool ended = false, driver_gone = false;
  for (bool run_changed = true; !ended;) {
    // Watch first, then read the state, then print. A change in between is noticed by a later step, and all lines of a
    // run that has ended are printed.
    if (run_changed) {
      run_watch = watch(inotify.get());
      state = read_run(run_).state;
      ended = driver_gone || state != "running";
    }
    open_new_files();
    for (auto& [rank, log] : logs_) print_new(log, log_path(rank));
    std::fflush(stdout);
    if (ended) break;
    std::array<pollfd, 2> events{{{inotify.get(), POLLIN, 0}, {driver.get(), POLLIN, 0}}};
    if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR) sys::throw_file_error("watch", run_, errno);
    driver_gone = events[1].revents != 0;
    run_changed = take_events(inotify.get(), run_watch) || driver_gone;
  }
  for (auto& [rank, log] : logs_) end_line(log);
  if (state == "unreadable")
    throw StorageError("[logs] the run.json of " + in_quotes(run_.native()) + " is gone or broken");
}

}  // namespace lockstep::cli
