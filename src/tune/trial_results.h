#pragma once

#include <string>
#include <vector>

#include "tune/experiment.h"
#include "tune/experiment_store.h"

namespace lockstep::tune {

/// A row of table trials, read.
Trial trial_of(const TrialRow& row);

/// The keys of metrics, "/" joining nested ones, for messages.
void list_keys(const Value& metrics, const std::string& prefix, std::vector<std::string>& into);
/// Throws ConfigError that lists the metrics there are, unless a trial has reported the metric or none has reported.
void check_is_reported(const Experiment& experiment, const std::string& metric);

}  // namespace lockstep::tune
