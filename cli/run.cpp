#include <lockstep/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "commands.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// The interpreter of the environment that this executable is installed in; empty where it stands alone.
fs::path python_beside_us() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* name : {"python3", "python"})
    if (!here.empty() && ::access((here / name).c_str(), X_OK) == 0 && fs::is_regular_file(here / name, ignored))
      return here / name;
  return {};
}

/// Starts the interpreter anew, so that the script runs as it does without us: only the place is added where Python
/// looks for what it runs first. There the alias waits for `import ray`.
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

/// The release that the option names, else the environment; empty: no alias.
std::string chosen_release(const std::string& option) {
  if (!option.empty()) return option;
  const char* variable = std::getenv("LOCKSTEP_AS_RAY");
  const std::string value = variable == nullptr ? "" : variable;
  return value == "0" || value == "false" ? "" : value;
}

}  // namespace

int run(const std::vector<std::string>& arguments, const std::string& as_ray) {
  if (arguments.empty()) throw ConfigError("[run] no script was given; try `lockstep run train.py`");
  std::error_code ignored;
  if (!fs::exists(arguments[0], ignored))
    throw ConfigError("[run] there is no script " + in_quotes(arguments[0]) + "; check the path");

  const fs::path beside = python_beside_us();
  std::string python = beside.empty() ? "python3" : beside.string();
  std::vector<std::string> words{python};
  if (const std::string release = chosen_release(as_ray); !release.empty()) {
    ::setenv("LOCKSTEP_AS_RAY", release.c_str(), 1);
    words.insert(words.end(), {"-c", kStartAsRay});
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  throw EngineError("[run] " + in_quotes(python) + " cannot be executed: " + std::strerror(errno) +
                    "; install Python 3, or put it in PATH");
}

}  // namespace lockstep::cli
