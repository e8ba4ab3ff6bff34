#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::store {

/// Where the run that a user names may lie, in the order of preference: `name` as a path; and below the default storage
/// path, unless `name` is absolute or leads out of it by `..`.
std::vector<std::filesystem::path> places_of_run(const std::filesystem::path& name);

/// The first of these that holds a run; nothing when none does. Throws StorageError when one cannot be looked at.
std::optional<std::filesystem::path> find_run(const std::filesystem::path& name);

}  // namespace lockstep::store
