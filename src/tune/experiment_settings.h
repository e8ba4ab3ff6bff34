#pragma once

#include <map>
#include <string>

#include "tune/experiment.h"

namespace lockstep::tune {

/// Throws ConfigError that names the setting, its value and what it may be.
void validate(const ExperimentSettings& settings);

/// The rows of table experiment: key and JSON text.
std::map<std::string, std::string> to_rows(const ExperimentSettings& settings);
/// The inverse. Throws StorageError if something is missing or has another type.
ExperimentSettings settings_of(const std::map<std::string, std::string>& rows);

/// The kind of the scheduler; if it is the caller's own, of the one that it completes.
std::string kind_of_scheduler(const ExperimentSettings& settings);

}  // namespace lockstep::tune
