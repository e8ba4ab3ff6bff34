#pragma once

#include <lockstep/value.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::cli {

/// What run.json says about a run, and whether that still holds. Missing or odd fields keep their defaults.
struct RunSummary {
  std::filesystem::path path;
  std::string state;  ///< running, finished, failed, interrupted; died: the driver is gone without a word; unreadable
  int attempts = 0;
  int failures = 0;
  long iterations = 0;
  double started = 0;              ///< seconds since 1970; 0: unknown
  double updated = 0;              ///< when run.json was written last
  double finished = 0;             ///< 0 also while it has not
  std::optional<double> duration;  ///< seconds; nothing: unknown, as after the clock went back
  Value metrics = Value::object();
  std::string trainer;
  int num_workers = 0;
  std::string error;  ///< why it failed, or cannot be read

  int driver_pid = 0;
  double driver_start_ticks = 0;  ///< 0: unknown
  std::string driver_host;
  bool driver_is_here = false;  ///< on this machine, so that it can be watched
};

inline constexpr std::array kStates{"running", "finished", "failed", "interrupted", "died", "unreadable"};

/// Whether a run lies there: is there a run.json?
bool is_run(const std::filesystem::path& path);

/// The directory of runs that a user names; the default storage path for nothing.
std::filesystem::path storage_of(const std::string& path);
/// The runs in that directory; none when the default storage path is not there yet. Throws ConfigError when it cannot
/// be listed.
std::vector<std::filesystem::path> runs_in(const std::string& path);

/// Reads a run. One whose run.json is broken is "unreadable".
RunSummary read_run(const std::filesystem::path& path);

/// Whether the process that run.json names is there: this very one, not another that has got its pid.
bool driver_is_alive(const RunSummary& run);

/// The run that a user names, as store::find_run. Throws ConfigError that tells where it looked.
std::filesystem::path find_run(const std::string& name);

/// A path's last component, also of "runs/digits/" and ".".
std::string name_of(const std::filesystem::path& path);

/// The reported metrics in one line, "epoch=3 val/loss=0.25"; what Lockstep filled in is left out.
std::string metrics_text(const Value& metrics);
/// "2026-01-31 12:59:59", local time; "-" for 0.
std::string time_text(double unix_seconds);

}  // namespace lockstep::cli
