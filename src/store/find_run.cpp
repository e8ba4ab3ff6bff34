#include "store/find_run.h"

#include <lockstep/error.h>

#include <algorithm>

#include "base/text.h"
#include "store/address.h"
#include "store/fetch.h"
#include "store/run_directory.h"

namespace lockstep::store {

namespace fs = std::filesystem;

std::vector<fs::path> places_of_run(const fs::path& name) {
  std::vector<fs::path> places;
  if (name.empty()) return places;
  if (name.native().find("://") != std::string::npos) return {local_path(name)};
  places.push_back(name);
  if (name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end()) return places;
  try {
    places.push_back(local_path(default_storage_path()) / name);
  } catch (const ConfigError&) {
    // Without a home directory there is no default storage path: only paths can name runs.
  }
  return places;
}

namespace {

/// Whether the default storage path, in which `place` is, is in an object store.
bool is_default_address(const fs::path& name, const fs::path& place) {
  return place != name && address_of(place).has_value();
}

}  // namespace

std::optional<fs::path> find_run(const fs::path& name) {
  if (is_address(name.native())) return fetch_run(Address::parse(name.native()));
  for (fs::path& place : places_of_run(name)) {
    if (RunDirectory(place).exists()) return std::move(place);
    if (is_default_address(name, place))
      if (auto fetched = fetch_run(*address_of(place))) return fetched;
  }
  return std::nullopt;
}

bool run_exists(const fs::path& name) {
  if (is_address(name.native())) return remote_run_exists(Address::parse(name.native()));
  return find_run(name).has_value();
}

std::optional<fs::path> run_to_resume(const RunConfig& run) {
  if (run.resume == "never") return std::nullopt;
  const auto complete = [](const fs::path& path) {
    fs::path place = fs::absolute(path).lexically_normal();
    return place.has_filename() ? place : place.parent_path();  // "results/digits-1/"
  };
  if (run.resume == "auto") {
    const fs::path storage = local_path(run.storage_path.empty() ? default_storage_path() : run.storage_path);
    fs::path place = complete(storage / run.name);
    if (const auto remote = address_of(place)) return fetch_run(*remote);
    return RunDirectory(place).exists() ? std::optional(std::move(place)) : std::nullopt;
  }
  if (const auto found = find_run(run.resume)) return complete(*found);
  throw ConfigError("[RunConfig] resume is " + in_quotes(run.resume) +
                    ", and there is no run; give the path of a run, its name in the default storage path, or 'auto'");
}

}  // namespace lockstep::store
