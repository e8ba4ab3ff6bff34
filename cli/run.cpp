#include <lockstep/error.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "commands.h"
#include "python.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// Starts the interpreter again, so that the script runs as it would without us. Only the directory of the alias's
/// `sitecustomize`, which waits for `import ray`, is added.
constexpr const char* kStartAsRay = R"(import importlib.util, os, sys
if sys.path[:1] == [""]:
    del sys.path[0]
package = importlib.util.find_spec("lockstep")
if package is None:
    sys.exit(f"lockstep: [run] {sys.executable} has no package lockstep; install it there, or leave out --as-ray")
startup = os.path.join(package.submodule_search_locations[0], "as_ray", "startup")
others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", startup)]
os.environ["PYTHONPATH"] = os.pathsep.join([startup, *others])
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
)";

/// The release given by the option, or else by the environment; empty: no alias.
std::string chosen_release(const std::string& option) {
  if (!option.empty()) return option;
  const char* variable = std::getenv("LOCKSTEP_AS_RAY");
  const std::string value = variable == nullptr ? "" : variable;
  return value == "0" || value == "false" ? "" : value;
}

}  // namespace

int run(const std::vector<std::string>& arguments, const std::string& as_ray) {
  if (arguments.empty()) throw ConfigError("[run] no script was given; try `lockstep run train.py`");
  const bool is_module = arguments[0].starts_with("-m");
  if (arguments[0] == "-m" && arguments.size() == 1)
    throw UsageError("[run] -m needs a module: lockstep run -m MODULE [ARGS...]");
  const bool launches =
      arguments[0] == "-m" ? arguments[1].starts_with('-') : arguments[0].starts_with('-') && !is_module;
  std::error_code ignored;
  if (!is_module && !launches && !fs::exists(arguments[0], ignored))
    throw ConfigError("[run] there is no script " + in_quotes(arguments[0]) + "; check the path");

  std::vector<std::string> words;
  if (const std::string release = chosen_release(as_ray); !release.empty()) {
    ::setenv("LOCKSTEP_AS_RAY", release.c_str(), 1);
    words = {"-c", kStartAsRay};
  }
  if (launches) words.insert(words.end(), {"-m", "lockstep._launch"});  // the workers' options are parsed there
  words.insert(words.end(), arguments.begin(), arguments.end());
  become_python("run", std::move(words));
}

}  // namespace lockstep::cli
