#pragma once

#include <filesystem>
#include <optional>

namespace lockstep::tune {

/// Whether the directory holds an experiment.
bool is_experiment(const std::filesystem::path& directory);
/// The directory of an experiment, given its path or its name in the default storage path. Throws ConfigError if there
/// is none.
std::filesystem::path find_experiment(const std::filesystem::path& name);

}  // namespace lockstep::tune
