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
#include <string>
#include <vector>

#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/run_directory.h"
#include "store/stop_request.h"
#include "sys/directory_lock.h"
#include "sys/files.h"
#include "sys/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{5000};
/// If the driver does not take a request for this long, it is signalled.
constexpr milliseconds kTakeWithin{2000};
/// How often the lock is checked after run.json says that the run has ended: there is no event for its release.
constexpr milliseconds kLockEvery{20};

[[noreturn]] void refuse(const std::string& run, const std::string& why) {
  throw ConfigError("[stop] the run " + in_quotes(run) + " " + why);
}

/// Throws unless the driver is alive and on this machine.
void check_alive(store::DriverState driver, const RunSummary& run, const std::string& name) {
  using store::DriverState;
  const auto& [pid, start_ticks, host] = run.record().driver;
  if (driver == DriverState::gone) refuse(name, "is not running: its driver has died");
  // The process may outlive its run; a signal would then hit something else.
  if (driver == DriverState::left)
    refuse(name, "is not running: process " + std::to_string(pid) + " left it without a final state");
  if (driver == DriverState::elsewhere)
    refuse(name, "is driven from " + in_quotes(host) + "; call `lockstep stop` on that machine");
  if (driver == DriverState::ended)
    refuse(name, "is not running: it is " + (run.state.empty() ? "unknown" : run.state));
}

/// The driver's pidfd. The driver is checked before and after opening it, so it cannot belong to another process that
/// got the same pid in between.
sys::Descriptor open_driver(const RunSummary& run, const std::string& name) {
  check_alive(run.view.driver, run, name);
  sys::Descriptor driver = sys::open_pidfd(run.record().driver.pid);
  check_alive(driver ? store::driver_state(run.path, run.record()) : store::DriverState::gone, run, name);
  return driver;
}

void take_events(int inotify) {
  std::array<char, 4096> buffer;
  while (::read(inotify, buffer.data(), buffer.size()) > 0) {
  }
}

/// Waits until the run has ended and its directory is unlocked, its driver is gone, or the deadline has passed. Returns
/// the run as it is then.
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

/// Asks the driver to end this run alone. Returns false if it did not take the request.
bool ask_driver(const fs::path& path, const store::DriverProcess& whom, const sys::Descriptor& driver,
                Clock::time_point deadline) {
  try {
    const sys::Descriptor inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify || ::inotify_add_watch(inotify.get(), path.c_str(), IN_DELETE | IN_ONLYDIR) < 0) return false;
    store::request_stop(path, whom);
    std::array<pollfd, 2> events{{{inotify.get(), POLLIN, 0}, {driver.get(), POLLIN, 0}}};
    while (sys::files().info(path / store::kStopRequest, false).kind != sys::FileKind::none) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left.count() <= 0 || events[1].revents != 0) return !store::withdraw_stop(path);
      if (::poll(events.data(), events.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
      take_events(inotify.get());
    }
    return true;
  } catch (const StorageError&) {  // for example another user's run
    return false;
  }
}

/// The other runs beside this one that the same process drives: a signal ends them too.
std::vector<std::string> others_of(const RunSummary& run) {
  std::error_code error;
  const fs::path path = fs::canonical(run.path, error);
  std::vector<std::string> names;
  if (error) return names;
  const store::DriverProcess& driver = run.record().driver;
  for (const fs::path& each : runs_in(path.parent_path().string())) {
    if (fs::equivalent(each, path, error)) continue;
    const RunSummary other = read_run(each);
    const store::DriverProcess& its = other.record().driver;
    if (other.state == "running" && its.pid == driver.pid && its.start_ticks == driver.start_ticks)
      names.push_back(printable(name_of(each)));
  }
  std::ranges::sort(names);
  return names;
}

/// Ends the run, and returns what was done. A signal is sent only if the driver does not take a request, because it
/// ends all runs of the process.
std::string end_run(const StopOptions& options, const RunSummary& run, const sys::Descriptor& driver,
                    Clock::time_point deadline) {
  const int pid = run.record().driver.pid;
  const std::string process = "process " + std::to_string(pid), name = printable(name_of(run.path));
  const auto latest = std::min(deadline, Clock::now() + kTakeWithin);
  if (!options.kill && ask_driver(run.path, run.record().driver, driver, latest))
    return "asked " + process + " to end " + name;
  check_alive(store::driver_state(run.path, run.record()), run, options.run);
  const auto others = others_of(run);
  // A program that a script started in the background ignores SIGINT.
  const int gentle = sys::catches_signal(pid, SIGINT) ? SIGINT : SIGTERM;
  sys::send_signal(driver.get(), options.kill ? SIGKILL : gentle);
  return (options.kill ? "killed " : "interrupted ") + process + ", the driver of " + name +
         (others.empty() ? "" : "; this also ends " + joined(others, ", "));
}

std::string last_checkpoint(const fs::path& path) {
  const auto seqs = store::RunDirectory(path).checkpoints();
  return seqs.empty() ? "it has no checkpoint"
                      : "its last checkpoint is " + store::RunDirectory::checkpoint_name(seqs.back());
}

}  // namespace

int stop(const StopOptions& options) {
  const fs::path path = find_run(options.run, Needs::record);
  const RunSummary run = read_run(path);
  const sys::Descriptor driver = open_driver(run, options.run);
  const auto timeout = std::chrono::duration<double>(std::min(options.timeout, 1e9));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  std::printf("%s; waiting up to %s for its end\n", end_run(options, run, driver, deadline).c_str(),
              human_duration(options.timeout).c_str());
  std::fflush(stdout);

  const RunSummary end = wait_for_end(path, driver, deadline);
  if (end.state == "running")
    throw TimeoutError("[stop] " + in_quotes(options.run) + " still runs after " + human_duration(options.timeout) +
                       "; wait longer with --timeout, or end it at once with --kill");
  std::printf("%s: %s after %s iterations; %s\n", printable(name_of(path)).c_str(), end.state.c_str(),
              std::to_string(end.record().training_iteration).c_str(), last_checkpoint(path).c_str());
  return 0;
}

}  // namespace lockstep::cli
