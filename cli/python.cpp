#include "python.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// The interpreter of this executable's environment; empty if there is none.
fs::path python_beside_us() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* name : {"python3", "python"})
    if (!here.empty() && ::access((here / name).c_str(), X_OK) == 0 && fs::is_regular_file(here / name, ignored))
      return here / name;
  return {};
}

}  // namespace

void become_python(const std::string& command, std::vector<std::string> arguments) {
  const fs::path beside = python_beside_us();
  std::string python = beside.empty() ? "python3" : beside.string();
  std::vector<char*> argv{python.data()};
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  throw EngineError("[" + command + "] " + in_quotes(python) + " cannot be executed: " + std::strerror(errno) +
                    "; install Python 3, or put it in PATH");
}

}  // namespace lockstep::cli
