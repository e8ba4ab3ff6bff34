#include <lockstep/error.h>

#include "commands.h"
#include "python.h"

namespace lockstep::cli {
namespace {

/// The agent is in the package of the interpreter that the workers will use.
constexpr const char* kBecomeAgent = R"(import importlib.util, os, sys
if sys.path[:1] == [""]:
    del sys.path[0]
package = importlib.util.find_spec("lockstep")
if package is None:
    sys.exit(f"lockstep: [agent] {sys.executable} has no package lockstep; install it there, or run its `lockstep`")
program = os.environ.get("LOCKSTEP_AGENT") or os.path.join(
    package.submodule_search_locations[0], "bin", "lockstep-agent"
)
try:
    os.execv(program, [program, *sys.argv[1:]])
except OSError as error:
    sys.exit(f"lockstep: [agent] {program} cannot be executed: {error}; install lockstep again, or correct LOCKSTEP_AGENT")
)";

}  // namespace

int agent(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"-c", kBecomeAgent};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become_python("agent", std::move(words));
}

}  // namespace lockstep::cli
