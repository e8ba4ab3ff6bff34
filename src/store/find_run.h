#pragma once

#include <lockstep/config.h>

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::store {

/// Where a run that the user names may be, in order of preference: `name` as a path, then `name` in the default storage
/// path, unless it is absolute or leads out of it with `..`.
std::vector<std::filesystem::path> places_of_run(const std::filesystem::path& name);

/// The first of these that holds a run, or nothing. A run at an address of an object store is copied into the cache
/// (fetch_run). Throws StorageError if one cannot be examined.
std::optional<std::filesystem::path> find_run(const std::filesystem::path& name);

/// Whether find_run() would find one. Copies nothing.
bool run_exists(const std::filesystem::path& name);

/// The directory of the run that a new run with this configuration continues, or nothing if it begins anew. Throws
/// ConfigError if `resume` names a run and there is none.
std::optional<std::filesystem::path> run_to_resume(const RunConfig& run);

}  // namespace lockstep::store
