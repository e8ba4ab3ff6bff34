#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/run_directory.h"
#include "sys/directory_lock.h"
#include "sys/files.h"
#include "sys/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{5000};
/// Between the last line in run.json and the lock's release: nothing tells when a lock goes.
constexpr milliseconds kLockEvery{20};

[[noreturn]] void refuse(const std::string& run, const std::string& why) {
  throw ConfigError("[stop] the run " + in_quotes(run) + " " + why);
}

/// The driver, held by its pidfd. The pid was the driver's when run.json was read, and the process behind it is as old
/// as the driver now, so that no other process can have got the pid in between.
sys::Descriptor open_driver(const RunSummary& run, const std::string& name) {
  if (run.state == "died") refuse(name, "is not running: its driver has died");
  if (run.state != "running") refuse(name, "is not running: it is " + (run.state.empty() ? "unknown" : run.state));
  if (!run.driver_is_here)
    refuse(name, "is driven from " + in_quotes(run.driver_host) + "; call `lockstep stop` on that machine");
  sys::Descriptor driver = run.driver_pid > 0 ? sys::open_pidfd(run.driver_pid) : sys::Descriptor();
  if (!driver || run.driver_start_ticks == 0 || !driver_is_alive(run))
    refuse(name, "is not running: its driver has died");
  // A process outlives its runs; a signal would then hit what it does next.
  if (sys::DirectoryLock::is_held(run.path) == false)
    refuse(name, "is not running: process " + std::to_string(run.driver_pid) + " has left it without an end");
  return driver;
}

void take_events(int inotify) {
  std::array<char, 4096> buffer;
  while (::read(inotify, buffer.data(), buffer.size()) > 0) {
  }
}

/// Waits until the run has ended and its directory is free, or its driver is gone, or the time is over; then gives the
/// run as it stands.
RunSummary wait_for_end(const fs::path& path, const sys::Descriptor& driver, Clock::time_point deadline) {
  const sys::Descriptor inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify || ::inotify_add_watch(inotify.get(), path.c_str(), IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR) < 0)
    sys::throw_file_error("watch", path, errno);
  const auto begin = Clock::now();
  auto told = begin;
  for (;;) {
    RunSummary run = read_run(path);
    const bool over = run.state != "running";
    const auto now = Clock::now();
    if ((over && sys::DirectoryLock::is_held(path) != true) || now >= deadline) return run;
    if (now - told >= kProgressEvery) {
      told = now;
      std::printf("still waiting after %s\n",
                  human_duration(std::chrono::duration<double>(now - begin).count()).c_str());
      std::fflush(stdout);
    }
    const auto longest = std::chrono::ceil<milliseconds>(std::min(deadline - now, Clock::duration(kProgressEvery)));
    std::array<pollfd, 2> events{{{inotify.get(), POLLIN, 0}, {driver.get(), POLLIN, 0}}};
    const auto timeout = static_cast<int>((over ? std::min(longest, kLockEvery) : longest).count());
    if (::poll(events.data(), events.size(), timeout) < 0 && errno != EINTR)
      sys::throw_file_error("watch", path, errno);
    if (events[1].revents != 0) return read_run(path);
    take_events(inotify.get());
  }
}

std::string last_checkpoint(const fs::path& path) {
  const auto seqs = store::RunDirectory(path).checkpoints();
  return seqs.empty() ? "it has no checkpoint"
                      : "its last checkpoint is " + store::RunDirectory::checkpoint_name(seqs.back());
}

}  // namespace

int stop(const StopOptions& options) {
  const fs::path path = find_run(options.run);
  const RunSummary run = read_run(path);
  const sys::Descriptor driver = open_driver(run, options.run);
  // A program that was started in the background of a script ignores SIGINT.
  const int gentle = sys::catches_signal(run.driver_pid, SIGINT) ? SIGINT : SIGTERM;
  sys::send_signal(driver.get(), options.kill ? SIGKILL : gentle);
  std::printf("%s process %d, the driver of %s; waiting up to %s for its end\n",
              options.kill ? "killed" : "interrupted", run.driver_pid, printable(name_of(path)).c_str(),
              human_duration(options.timeout).c_str());
  std::fflush(stdout);

  const auto timeout = std::chrono::duration<double>(std::min(options.timeout, 1e9));
  const RunSummary end =
      wait_for_end(path, driver, Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout));
  if (end.state == "running")
    throw TimeoutError("[stop] " + in_quotes(options.run) + " still runs after " + human_duration(options.timeout) +
                       "; wait longer with --timeout, or end it at once with --kill");
  std::printf("%s: %s after %ld iterations; %s\n", printable(name_of(path)).c_str(), end.state.c_str(), end.iterations,
              last_checkpoint(path).c_str());
  return 0;
}

}  // namespace lockstep::cli
