#include <lockstep/error.h>

#include <filesystem>

#include "base/text.h"
#include "commands.h"
#include "python.h"
#include "run_summary.h"
#include "store/find_run.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// The program is in the package of this environment's interpreter.
constexpr const char* kBecomeDashboard = R"(import importlib.util, os, sys
if sys.path[:1] == [""]:
    del sys.path[0]
package = importlib.util.find_spec("lockstep")
if package is None:
    sys.exit(f"lockstep: [dashboard] {sys.executable} has no package lockstep; install it there, or run its `lockstep`")
program = os.path.join(package.submodule_search_locations[0], "bin", "lockstep-dashboard")
if not os.path.exists(program):
    sys.exit(
        "lockstep: [dashboard] this installation has no dashboard, because it was built without Boost; install its "
        "headers (Debian: libboost-dev) and build or install lockstep again"
    )
try:
    os.execv(program, [program, *sys.argv[1:]])
except OSError as error:
    sys.exit(f"lockstep: [dashboard] {program} cannot be executed: {error}; install lockstep again")
)";

/// What the user named: a path first, then a name in the default storage path. That one is made if it is missing, so
/// that the first run appears.
fs::path shown_directory(const std::string& path) {
  std::error_code error;
  if (path.empty()) {
    const fs::path storage = storage_of(path);
    sys::files().make_directories(storage);
    return storage;
  }
  if (path.find("://") != std::string::npos)
    throw ConfigError(
        "[dashboard] " + in_quotes(path) +
        " is no directory of this machine, and only those can be shown; copy the runs, or mount the store");
  for (const fs::path& place : store::places_of_run(path))
    if (fs::is_directory(place, error)) return place;
  throw ConfigError("[dashboard] there is no directory " + in_quotes(path) +
                    "; give a run, an experiment, or a directory of them; `lockstep runs` lists the runs");
}

}  // namespace

int dashboard(const DashboardOptions& options) {
  std::vector<std::string> words{"-c", kBecomeDashboard, fs::absolute(shown_directory(options.path)).native()};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--host", options.host);
  if (options.port) add("--port", std::to_string(*options.port));
  add("--cert", options.cert);
  add("--key", options.key);
  become_python("dashboard", std::move(words));
}

}  // namespace lockstep::cli
