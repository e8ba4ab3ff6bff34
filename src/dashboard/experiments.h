#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "sys/beneath_files.h"

namespace lockstep::dashboard {

/// One experiment as the list shows it, a JSON object: its metrics, how many trials are in each state, the best one. If
/// its database cannot be read, `error` says why.
std::string listed_experiment(const std::string& id, const std::filesystem::path& path, const sys::BeneathFiles& files);

/// What a page shows of experiments. Their databases are opened for reading only, and nothing in them is unpickled. Any
/// thread may call.
class Experiments {
 public:
  explicit Experiments(const sys::BeneathFiles& files) : files_(files) {}

  /// Settings, all trials with configurations and last results, the space and each trial's point in it.
  std::string trials_json(const std::filesystem::path& path) const;
  /// One plot: "importance" of the parameters for `metric`, or "pareto": the front of metrics `x` and `y`. Empty names
  /// are the experiment's own. Kept until the database changes.
  std::string plot_json(const std::filesystem::path& path, const std::string& kind, const std::string& metric,
                        const std::string& x, const std::string& y);

 private:
  struct Kept {
    std::string version, text;
  };
  const sys::BeneathFiles& files_;
  std::mutex mutex_;  ///< guards kept_
  std::map<std::string, Kept> kept_;
};

}  // namespace lockstep::dashboard
