#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "commands.h"
#include "python.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// The CMake packages in this executable's environment, where installers put them. Usually one; several if the
/// environment serves several versions of Python.
std::vector<fs::path> packages_beside_us() {
  std::error_code ignored;
  const fs::path environment = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  std::vector<fs::path> places{environment};  // `pip install --target`
  for (const fs::directory_entry& entry : fs::directory_iterator(environment / "lib", ignored))
    if (entry.path().filename().string().starts_with("python3"))
      for (const char* packages : {"site-packages", "dist-packages"}) places.push_back(entry.path() / packages);
  std::vector<fs::path> found;
  for (const fs::path& place : places)
    if (fs::is_regular_file(place / "lockstep" / "cmake" / "lockstep-config.cmake", ignored))
      found.push_back(place / "lockstep" / "cmake");
  return found;
}

/// The package that an interpreter would import, without importing it.
constexpr const char* kAsk = R"(import importlib.util, os, sys
if sys.path[:1] == [""]:
    del sys.path[0]
package = importlib.util.find_spec("lockstep")
for place in package.submodule_search_locations or () if package else ():
    directory = os.path.abspath(os.path.join(place, "cmake"))
    if os.path.isfile(os.path.join(directory, "lockstep-config.cmake")):
        print(directory)
        sys.exit()
if package:
    found = f"the package lockstep of {sys.executable} ({package.origin}) has no CMake package; "
    sys.exit(f"lockstep: [cmake-dir] {found}build it (`make build` in a clone), or reinstall it")
sys.exit(f"lockstep: [cmake-dir] {sys.executable} has no package lockstep; install it there, or run its `lockstep`")
)";

}  // namespace

int cmake_dir() {
  const auto beside = packages_beside_us();
  if (beside.size() != 1) become_python("cmake-dir", {"-c", kAsk});
  std::printf("%s\n", beside.front().c_str());
  return 0;
}

}  // namespace lockstep::cli
