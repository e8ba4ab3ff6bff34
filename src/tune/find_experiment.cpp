#include "tune/find_experiment.h"

#include <lockstep/error.h>

#include "base/text.h"
#include "store/find_run.h"

namespace lockstep::tune {

namespace fs = std::filesystem;

bool is_experiment(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "experiment.sqlite", ignored);
}

fs::path find_experiment(const fs::path& name) {
  for (const fs::path& place : store::places_of_run(name)) {
    fs::path directory = fs::absolute(place).lexically_normal();
    if (!directory.has_filename()) directory = directory.parent_path();  // "results/search-1/"
    if (is_experiment(directory)) return directory;
  }
  throw ConfigError("[tune] there is no experiment " + in_quotes(name.string()) +
                    "; give the directory that ResultGrid::experiment_path() names, or its name in the default storage "
                    "path");
}

}  // namespace lockstep::tune
