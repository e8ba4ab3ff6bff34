#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tune/experiment.h"

namespace lockstep::cli {

/// An experiment, opened for reading: nothing is changed, also while another process runs it.
struct OpenedExperiment {
  std::filesystem::path path;
  std::unique_ptr<tune::Experiment> experiment;
};

/// The experiment that the user named: a path first, then a name in the default storage path, as for runs. Throws
/// ConfigError that says what is there instead.
OpenedExperiment open_experiment(const std::string& name);

/// The metric and mode by which trials are compared: those that the user named, otherwise the experiment's first one.
/// A metric that the experiment does not know is minimised unless a mode is given.
struct Goal {
  std::string metric;  ///< empty: there is none
  bool maximize = false;

  const char* mode() const { return maximize ? "max" : "min"; }
};
Goal goal_of(const tune::ExperimentSettings& settings, const std::string& metric, const std::string& mode);

}  // namespace lockstep::cli
