#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tune/experiment_store.h"

namespace lockstep::tune {

/// See Experiment::best().
std::optional<TrialNumber> best_of_rows(ExperimentStore& store, const std::string& metric, const std::string& mode,
                                        const std::string& scope, bool finite);

/// See Experiment::pareto_front().
std::vector<TrialNumber> front_of_rows(ExperimentStore& store, const std::vector<std::string>& metrics,
                                       const std::vector<std::string>& modes);

/// The indices of the points that no other one beats: none is at least as low everywhere, and lower somewhere.
std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points);

}  // namespace lockstep::tune
