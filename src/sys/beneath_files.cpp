#include "sys/beneath_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <lockstep/error.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/text.h"

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_path(const fs::path& path, const char* why) {
  throw StorageError("[storage] " + in_quotes(path.native()) + " is not opened: " + why);
}

/// Where openat2 is missing (a kernel before 5.6, or a sandbox that forbids it): component by component, no links.
Descriptor open_step_by_step(int root, const fs::path& relative) {
  Descriptor at(::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const fs::path& name : relative) {
    if (!at) break;
    if (name == "..") {
      errno = EXDEV;
      return {};
    }
    if (!name.empty() && name != ".")
      at = Descriptor(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  return at;
}

Descriptor open_beneath(int root, const fs::path& relative) {
  struct open_how how {};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string name = relative.empty() ? "." : relative.native();
  const long opened = ::syscall(SYS_openat2, root, name.c_str(), &how, sizeof how);
  if (opened < 0 && (errno == ENOSYS || errno == EPERM)) return open_step_by_step(root, relative);
  return Descriptor(static_cast<int>(opened));
}

}  // namespace

BeneathFiles::BeneathFiles(const fs::path& root) {
  std::error_code error;
  root_ = fs::canonical(root, error);
  if (error) throw_file_error("open the directory", root, error.value());
  directory_ = Descriptor(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) throw_file_error("open the directory", root, errno);
}

OpenFile BeneathFiles::open(const fs::path& path, OpenMode mode) {
  if (mode != OpenMode::read) refuse_path(path, "this program only reads");
  OpenFile file = PosixFiles::open(path, mode);
  if (info_of(file).kind != FileKind::file) refuse_path(path, "it is not a file");
  return file;
}

FileInfo BeneathFiles::info(const fs::path& path, bool follow_links) {
  try {
    return PosixFiles::info(path, follow_links);
  } catch (const FileError& error) {
    if (error.is_missing()) return {};
    throw;
  }
}

Descriptor BeneathFiles::open_directory(const fs::path& path) const {
  const fs::path relative = path.lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") refuse_path(path, "it is outside of the directory that is shown");
  Descriptor opened = open_beneath(directory_.get(), relative);
  if (!opened && errno == EXDEV) refuse_path(path, "it leads out of the directory that is shown");
  if (!opened) throw_file_error("open the directory", path, errno);
  return opened;
}

PosixFiles::Place BeneathFiles::locate(const fs::path& path) const {
  const std::string name = path.filename().native();
  if (name == "..") refuse_path(path, "it ends in ..");
  Place place{-1, ".", O_NOFOLLOW};
  if (path == root_ || name.empty() || name == ".") {
    place.owned = open_directory(path);
  } else {
    place.owned = open_directory(path.parent_path());
    place.name = name;
  }
  place.directory = place.owned.get();
  return place;
}

}  // namespace lockstep::sys
