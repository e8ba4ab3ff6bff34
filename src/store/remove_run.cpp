#include "store/remove_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "sys/descriptor.h"
#include "sys/directory_lock.h"
#include "sys/files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using sys::Descriptor;
using sys::throw_file_error;

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct stat status_of(int fd, const fs::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_file_error("look at", path, errno);
  return status;
}

bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// All entries of the directory, read first: removing while reading may skip entries.
std::vector<std::string> names_in(int directory, const fs::path& path) {
  Descriptor own(::openat(directory, ".", kDirectory));
  if (!own) throw_file_error("list", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(own.get()), ::closedir);
  if (!entries) throw_file_error("list", path, errno);
  own.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) throw_file_error("list", path, errno);
  return names;
}

/// Removes the contents of an open directory. `path` is for messages only.
void remove_contents(int directory, const fs::path& path) {
  const auto device = status_of(directory, path).st_dev;
  for (const std::string& name : names_in(directory, path)) {
    if (::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    // For a directory, Linux returns EISDIR; POSIX allows EPERM.
    if (errno != EISDIR && errno != EPERM) throw_file_error("remove", path / name, errno);
    const Descriptor inner(::openat(directory, name.c_str(), kDirectory));
    if (!inner) throw_file_error("remove", path / name, errno);
    if (status_of(inner.get(), path / name).st_dev != device) throw_file_error("remove", path / name, EBUSY);
    remove_contents(inner.get(), path / name);
    if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      throw_file_error("remove", path / name, errno);
  }
}

/// Removes the directory `name`, which is open as `directory`.
void remove_opened(int parent, const fs::path& parent_path, int directory, const std::string& name) {
  const fs::path path = parent_path / name;
  remove_contents(directory, path);
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) throw_file_error("remove the directory", path, errno);
}

Descriptor open_parent(const fs::path& path) {
  Descriptor parent(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) throw_file_error("open the directory", path, errno);
  return parent;
}

bool has_run_json(int directory) {
  struct stat status {};
  return ::fstatat(directory, "run.json", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

Removal remove_run(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  const std::string name = whole.filename();
  const Descriptor parent = open_parent(whole.parent_path());
  const Descriptor run(::openat(parent.get(), name.c_str(), kDirectory));
  if (!run && (errno == ELOOP || errno == ENOTDIR || errno == ENOENT)) return Removal::no_run;
  if (!run) throw_file_error("open the directory", whole, errno);
  const struct stat status = status_of(run.get(), whole);
  if (status.st_uid != ::geteuid() || !has_run_json(run.get())) return Removal::no_run;
  // From here on no driver can start to restore it.
  const auto lock = sys::DirectoryLock::take(run.get());
  if (!lock) return Removal::in_use;

  // A unique name as long as the directory exists: the file system gives its inode number to no other.
  const std::string removed = std::string(kRemovedPrefix) + std::to_string(status.st_ino);
  if (::renameat(parent.get(), name.c_str(), parent.get(), removed.c_str()) != 0)
    throw_file_error("rename", whole, errno);
  struct stat renamed {};
  if (::fstatat(parent.get(), removed.c_str(), &renamed, AT_SYMLINK_NOFOLLOW) != 0 || !is_same(status, renamed)) {
    // Another directory took this name since we looked: rename it back.
    (void)::renameat2(parent.get(), removed.c_str(), parent.get(), name.c_str(), RENAME_NOREPLACE);
    return Removal::no_run;
  }
  if (::unlinkat(run.get(), "run.json", 0) != 0) throw_file_error("remove", whole / "run.json", errno);
  // Make this durable first: a power cut must not bring run.json back to a partly removed run.
  if (::fsync(run.get()) != 0 && errno != EINVAL) throw_file_error("sync the directory", whole, errno);
  remove_opened(parent.get(), whole.parent_path(), run.get(), removed);
  return Removal::done;
}

void remove_leftovers(const fs::path& storage) {
  const Descriptor parent = open_parent(storage);
  for (const std::string& name : names_in(parent.get(), storage)) {
    if (!name.starts_with(kRemovedPrefix)) continue;
    const Descriptor left(::openat(parent.get(), name.c_str(), kDirectory));
    if (!left || status_of(left.get(), storage / name).st_uid != ::geteuid() || has_run_json(left.get())) continue;
    // Another process may be removing it.
    if (const auto lock = sys::DirectoryLock::take(left.get())) remove_opened(parent.get(), storage, left.get(), name);
  }
}

}  // namespace lockstep::store
