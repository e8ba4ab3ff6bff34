#include "engine/secret_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/ids.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;

struct Files {
  std::mutex mutex;
  int owner = 0;
  std::vector<std::string> paths;
};
Files& files() {
  static auto* all = new Files;
  return *all;
}

void remove_all() {
  Files& all = files();
  if (all.owner != ::getpid()) return;
  std::error_code ignored;
  for (const auto& path : all.paths) fs::remove(path, ignored);
}

/// Whether it is, or becomes, a directory of ours alone.
bool make_private(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

std::string new_secret_path() {
  const std::string name = "secret-" + std::to_string(::getpid()) + "-" + random_hex(8);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    if (const fs::path folder = fs::path(home) / ".lockstep"; make_private(folder)) return folder / name;
  return fs::temp_directory_path() / ("lockstep-" + name);
}

void remove_at_exit(const std::string& path) {
  static const int registered = std::atexit(&remove_all);
  static_cast<void>(registered);
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  if (all.owner != ::getpid()) all.paths.clear();
  all.owner = ::getpid();
  all.paths.push_back(path);
}

}  // namespace lockstep::engine
