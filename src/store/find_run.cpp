#include "store/find_run.h"

#include <lockstep/error.h>

#include <algorithm>

#include "store/run_directory.h"

namespace lockstep::store {

namespace fs = std::filesystem;

std::vector<fs::path> places_of_run(const fs::path& name) {
  std::vector<fs::path> places;
  if (name.empty()) return places;
  places.push_back(name);
  if (name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end()) return places;
  try {
    places.push_back(default_storage_path() / name);
  } catch (const ConfigError&) {
    // Without a home directory there is no default storage path: only paths can name runs.
  }
  return places;
}

std::optional<fs::path> find_run(const fs::path& name) {
  for (fs::path& place : places_of_run(name))
    if (RunDirectory(place).exists()) return std::move(place);
  return std::nullopt;
}

}  // namespace lockstep::store
