#pragma once

#include <lockstep/value.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "store/run_view.h"

namespace lockstep::cli {

/// A run as the commands show it.
struct RunSummary {
  std::filesystem::path path;
  std::string state;    ///< RunView::state(), or "unreadable" if its run.json is broken
  std::string error;    ///< why it failed or cannot be read
  store::RunView view;  ///< fields of run.json that are missing or of a wrong type keep their defaults

  const store::RunRecord& record() const { return view.record; }
};

inline constexpr std::array kStates{"running", "finished",  "failed", "interrupted",
                                    "stopped", "preempted", "died",   "unreadable"};

/// Whether there is a run: a run.json.
bool is_run(const std::filesystem::path& path);

/// The directory of runs that the user named; the default storage path if `path` is empty.
std::filesystem::path storage_of(const std::string& path);
/// The runs in that directory; none if the default storage path does not exist yet. Throws ConfigError if it cannot be
/// listed.
std::vector<std::filesystem::path> runs_in(const std::string& path);

/// Reads a run. If its run.json is broken, its state is "unreadable".
RunSummary read_run(const std::filesystem::path& path);

/// What a command needs of a run in an object store, which is copied into the cache.
enum class Needs { record, logs, manifests, everything };

/// The run that the user named (store::find_run), or the copy of one in an object store. Throws ConfigError with the
/// places that were searched.
std::filesystem::path find_run(const std::string& name, Needs needs);

/// A path's last component, also for "runs/digits/" and ".".
std::string name_of(const std::filesystem::path& path);

/// The reported metrics in one line, "epoch=3 val/loss=0.25", without autofilled keys.
std::string metrics_text(const Value& metrics);
/// "2026-01-31 12:59:59", local time; "-" for 0.
std::string time_text(double unix_seconds);

}  // namespace lockstep::cli
