#include "sys/own_program.h"

#include <dlfcn.h>
#include <unistd.h>

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;

fs::path& program_directory() {
  static fs::path directory;
  return directory;
}

/// Directories of the library that holds this code and of the running executable.
std::vector<fs::path> own_directories() {
  std::vector<fs::path> result;
  std::error_code error;
  Dl_info info{};
  static const int here = 0;
  // For the executable itself, the loader may know only a relative name; /proc has the absolute one.
  if (::dladdr(&here, &info) != 0 && info.dli_fname != nullptr && info.dli_fname[0] == '/')
    if (const auto path = fs::canonical(info.dli_fname, error); !error) result.push_back(path.parent_path());
  if (const auto path = fs::read_symlink("/proc/self/exe", error); !error) result.push_back(path.parent_path());
  return result;
}

}  // namespace

void set_program_directory(const fs::path& directory) { program_directory() = directory; }

std::vector<fs::path> places_of_program(std::string_view name, std::string_view folder) {
  std::vector<fs::path> result;
  if (!program_directory().empty()) result.push_back(program_directory() / name);
  for (const auto& directory : own_directories()) {
    for (const auto* relative : {"bin", "../bin", "."})
      result.push_back((directory / relative / name).lexically_normal());
    fs::path above = directory;
    for (int level = 0; level < 4 && above.has_relative_path(); ++level, above = above.parent_path())
      result.push_back(above / "src" / folder / name);
    // The command line of an environment, whose packages hold the programs.
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory.parent_path() / "lib", ignored))
      if (entry.path().filename().native().starts_with("python3"))
        for (const char* packages : {"site-packages", "dist-packages"})
          result.push_back(entry.path() / packages / "lockstep" / "bin" / name);
  }
  return result;
}

bool is_program(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

}  // namespace lockstep::sys
