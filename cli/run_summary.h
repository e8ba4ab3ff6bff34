#pragma once

#include <lockstep/value.h>

#include <filesystem>
#include <optional>
#include <string>

#include "sys/descriptor.h"

namespace lockstep::cli {

/// What run.json says about a run, and whether that still holds. Missing or odd fields keep their defaults.
struct RunSummary {
  std::filesystem::path path;
  std::string state;  ///< running, finished, failed, interrupted; died: the driver is gone without a word; unreadable
  int attempts = 0;
  int failures = 0;
  long iterations = 0;
  double started = 0;   ///< seconds since 1970; 0: unknown
  double duration = 0;  ///< seconds
  Value metrics = Value::object();

  int driver_pid = 0;
  std::string driver_host;
  bool driver_is_here = false;  ///< on this machine, so that it can be watched
};

/// Whether a run lies there: is there a run.json?
bool is_run(const std::filesystem::path& path);

/// Reads a run. One whose run.json is broken is "unreadable".
RunSummary read_run(const std::filesystem::path& path);

/// The run that a user names: a directory, or a name below the default storage path. Throws ConfigError that tells
/// where it looked.
std::filesystem::path find_run(const std::string& name);

/// The reported metrics in one line, "epoch=3 val/loss=0.25"; what Lockstep filled in is left out.
std::string metrics_text(const Value& metrics);
/// "2026-01-31 12:59:59", local time; "-" for 0.
std::string time_text(double unix_seconds);

}  // namespace lockstep::cli
