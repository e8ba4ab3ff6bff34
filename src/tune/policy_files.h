#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tune/experiment.h"

namespace lockstep::tune {

/// The files of population based training in an experiment's directory, each line a list in JSON: pbt_global.txt with
/// all changes, and for each trial that has changed pbt_policy_<id>.txt with those that made it what it is. Names and
/// texts; none without a change.
std::vector<std::pair<std::string, std::string>> policy_files(const Experiment& experiment);

/// What a pbt_policy_<id>.txt says.
struct Policy {
  Value config;   ///< with which the trial began
  Value changes;  ///< [[time, config], ...], by time: the policy of pbt_replay
};
/// Throws ConfigError if there is no such file, or if it is something else. A leading ~ is the home directory.
Policy read_policy(const std::string& file);

}  // namespace lockstep::tune
