#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::store {

/// Prefix of the names of directories that an interrupted remove_run() left. They have no run.json, so they are not
/// runs.
inline constexpr std::string_view kRemovedPrefix = ".lockstep-removed-";

enum class Removal {
  done,
  in_use,  ///< a driver has locked the run: nothing was changed
  no_run   ///< there is no run of ours: not a directory (or a link), another user's, or without run.json
};

/// Removes a run's directory with its contents. The directory is renamed first and loses its run.json before anything
/// else, so that it is a complete run or none whenever this process ends. Follows no links and does not touch mounted
/// file systems. Throws StorageError if something cannot be removed; the rest is then gone or has the prefix above.
Removal remove_run(const std::filesystem::path& path);

/// Removes what interrupted calls left in `storage`, a directory of runs.
void remove_leftovers(const std::filesystem::path& storage);

}  // namespace lockstep::store
