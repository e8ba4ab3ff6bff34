#include <lockstep/error.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw ConfigError("[run] no script was given; try `lockstep run train.py`");
  std::error_code ignored;
  if (!fs::exists(arguments[0], ignored))
    throw ConfigError("[run] there is no script " + in_quotes(arguments[0]) + "; check the path");

  const fs::path beside = python_beside_us();
  std::string python = beside.empty() ? "python3" : beside.string();
  std::vector<std::string> words{python};
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
