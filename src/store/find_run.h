#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::store {

/// Where a run that the user names may be, in order of preference: `name` as a path, then `name` in the default storage
/// path, unless it is absolute or leads out of it with `..`.
std::vector<std::filesystem::path> places_of_run(const std::filesystem::path& name);

/// The first of these that holds a run, or nothing. Throws StorageError if one cannot be examined.
std::optional<std::filesystem::path> find_run(const std::filesystem::path& name);

}  // namespace lockstep::store
