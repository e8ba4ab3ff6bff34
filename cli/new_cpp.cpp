#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/text.h"
#include "commands.h"
#include "new_cpp_templates.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct Template {
  const char* file;
  const char* text;
};
constexpr std::array kTemplates{Template{"CMakeLists.txt", kNewCppCMakeLists}, Template{"main.cpp", kNewCppMain},
                                Template{"README.md", kNewCppReadme}, Template{".gitignore", "/build/\n"}};

/// Targets of CMake's generators and of our CMake package, and names in the build directory.
constexpr std::array kTaken{"all",
                            "clean",
                            "depend",
                            "edit_cache",
                            "help",
                            "install",
                            "list_install_components",
                            "package",
                            "package_source",
                            "preinstall",
                            "rebuild_cache",
                            "test",
                            "ALL_BUILD",
                            "CMakeFiles",
                            "INSTALL",
                            "PACKAGE",
                            "RUN_TESTS",
                            "ZERO_CHECK",
                            "lockstep_libtorch",
                            "lockstep_torch"};

/// The project's name must be a valid CMake target and file name.
void check_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  if (name.empty() || !is_letter(name.front()) || !std::all_of(name.begin(), name.end(), fits))
    throw ConfigError("[new] a project cannot be named " + in_quotes(name) +
                      "; begin with a letter, and use letters, digits, `_` and `-` only");
  if (std::find(kTaken.begin(), kTaken.end(), name) != kTaken.end())
    throw ConfigError("[new] a project cannot be named " + in_quotes(name) +
                      ": CMake reserves the name; choose another");
}

/// Throws unless there is nothing of that name, or an empty directory.
void check_free(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(directory, error);
  if (!fs::exists(status)) return;  // also if it cannot be checked: creating it will report why
  if (!fs::is_directory(directory, error))
    throw ConfigError("[new] " + in_quotes(directory.string()) + " exists and is not a directory; choose another name");
  if (!fs::is_empty(directory, error) || error)
    throw ConfigError("[new] " + in_quotes(directory.string()) + " already holds files; choose another name");
}

/// What was created so far; removed again unless keep() is called.
class Made {
 public:
  ~Made() {
    std::error_code ignored;
    for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) fs::remove(*path, ignored);
  }
  void keep() { paths_.clear(); }

  /// `path` and its missing parent directories.
  void directories(const fs::path& path) {
    std::vector<fs::path> missing;
    std::error_code ignored;
    for (fs::path above = path; !fs::exists(above, ignored); above = above.parent_path()) missing.push_back(above);
    for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
      std::error_code error;
      if (!fs::create_directory(*next, error) && error) fail(*next, error.message());
      paths_.push_back(*next);
    }
  }

  void file(const fs::path& path, const std::string& text) {
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    if (out) paths_.push_back(path);
    out << text;
    out.close();
    if (!out) fail(path, std::strerror(errno));
  }

 private:
  [[noreturn]] static void fail(const fs::path& path, const std::string& reason) {
    throw StorageError("[new] could not make " + in_quotes(path.string()) + ": " + reason +
                       "; nothing was written: choose another place");
  }

  std::vector<fs::path> paths_;
};

std::string filled(std::string text, const std::string& name) {
  constexpr std::string_view kMark = "@NAME@";
  for (auto at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + name.size()))
    text.replace(at, kMark.size(), name);
  return text;
}

/// Quoted so that a shell takes it as one word.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("_-./+,:@%", c) != nullptr; };
  if (std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

int new_cpp(const std::string& name_or_path) {
  if (name_or_path.empty()) check_name("");
  fs::path directory = fs::absolute(name_or_path).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // it ended with a slash
  const std::string name = directory.filename().string();
  check_name(name);
  check_free(directory);

  Made made;
  made.directories(directory);
  for (const auto& [file, text] : kTemplates) made.file(directory / file, filled(text, name));
  made.keep();

  std::printf("%s: CMakeLists.txt, main.cpp, README.md, .gitignore\n\nBuild it and let it train:\n\n",
              shell_word(directory.string()).c_str());
  if (directory != fs::current_path()) std::printf("    cd %s\n", shell_word(name_or_path).c_str());
  std::printf("    cmake -S . -B build\n    cmake --build build -j 2\n    ./build/%s\n", name.c_str());
  return 0;
}

}  // namespace lockstep::cli
