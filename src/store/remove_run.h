#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::store {

/// How the names of directories begin that remove_run() was about to remove when it was interrupted. They hold no
/// run.json, so they are no runs.
inline constexpr std::string_view kRemovedPrefix = ".lockstep-removed-";

enum class Removal {
  done,
  in_use,  ///< a driver holds the run: nothing was changed
  no_run   ///< no run of ours lies there: no directory (a link is none), another user's, or without run.json
};

/// Removes a run's directory with all in it. It is renamed first and loses its run.json before anything else, so that
/// whatever moment this process ends at, it is a whole run or none. Follows no link, and leaves what is mounted there.
/// Throws StorageError when something cannot be removed; the rest is then gone or bears the name above.
Removal remove_run(const std::filesystem::path& path);

/// Removes what interrupted calls have left in `storage`, a directory of runs.
void remove_leftovers(const std::filesystem::path& storage);

}  // namespace lockstep::store
