#include "sys/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <lockstep/error.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/text.h"

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
      return "; the disk is full: free some space or choose another storage_path";
    case EDQUOT:
      return "; your disk quota is used up: free some space or choose another storage_path";
    case EACCES:
    case EPERM:
      return "; check the owner and the permissions";
    case EROFS:
      return "; the file system is read-only: choose another storage_path";
    case EMFILE:
    case ENFILE:
      return "; too many files are open: raise the limit (ulimit -n)";
    case ELOOP:
      return "; links are not followed here: remove the link";
    case EIO:
      return "; the disk reports an error: see the kernel's log";
    default:
      return "";
  }
}

template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

FileKind kind_of(mode_t mode) {
  return S_ISREG(mode)   ? FileKind::file
         : S_ISDIR(mode) ? FileKind::directory
         : S_ISLNK(mode) ? FileKind::symlink
                         : FileKind::other;
}

FileInfo to_info(const struct stat& status) {
  return {kind_of(status.st_mode), static_cast<std::uint64_t>(status.st_size), status.st_uid, status.st_mode & 07777,
          status.st_nlink};
}

FileKind kind_of_entry(DIR* directory, const fs::path& path, const dirent& entry) {
  switch (entry.d_type) {
    case DT_REG:
      return FileKind::file;
    case DT_DIR:
      return FileKind::directory;
    case DT_LNK:
      return FileKind::symlink;
    case DT_UNKNOWN:
      break;
    default:
      return FileKind::other;
  }
  struct stat status {};
  if (::fstatat(::dirfd(directory), entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    throw_file_error("look at", path / entry.d_name, errno);
  return kind_of(status.st_mode);
}

/// Opens a new file that replaces a file or a link; anything else is left in place.
int open_in_place(int directory, const char* name, int flags) {
  for (int attempt = 0;; ++attempt) {
    const int fd = retry_interrupted([&] { return ::openat(directory, name, flags | O_EXCL, 0600); });
    if (fd >= 0 || errno != EEXIST || attempt == 10) return fd;
    struct stat status {};
    const bool there = ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
      errno = EEXIST;
      return -1;
    }
    if (there && ::unlinkat(directory, name, 0) != 0 && errno != ENOENT) return -1;
  }
}

int open_directory(int directory, const char* name, int flags) {
  return retry_interrupted([&] { return ::openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags); });
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

void throw_file_error(std::string_view action, const fs::path& path, int error) {
  const char* name = ::strerrorname_np(error);
  throw FileError("[storage] could not " + std::string(action) + " " + in_quotes(path.native()) + ": " +
                      std::generic_category().message(error) + (name != nullptr ? " (" + std::string(name) + ")" : "") +
                      std::string(advice(error)),
                  error);
}

FileInfo info_of(const OpenFile& file) {
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) throw_file_error("look at", file.path, errno);
  return to_info(status);
}

bool FileError::is_missing() const { return error_ == ENOENT || error_ == ENOTDIR; }

Files& files() {
  static PosixFiles posix;
  return posix;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) ::munmap(data_, size_);
}

// ---------------------------------------------------------------- built from the virtual functions

void Files::write_all(OpenFile& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) bytes = bytes.subspan(write(file, bytes));
}

std::vector<std::uint8_t> Files::read_file(const fs::path& path) {
  OpenFile file = open(path, OpenMode::read);
  // One byte more than the size, so that the end is found without growing the buffer.
  std::vector<std::uint8_t> contents(info(path).size + 1);
  std::size_t filled = 0;
  while (true) {
    if (filled == contents.size()) contents.resize(filled * 2);
    const auto count = read(file, std::as_writable_bytes(std::span(contents).subspan(filled)));
    if (count == 0) break;
    filled += count;
  }
  close(std::move(file));
  contents.resize(filled);
  return contents;
}

std::string Files::read_text(const fs::path& path) {
  const auto contents = read_file(path);
  return {contents.begin(), contents.end()};
}

void Files::make_directories(const fs::path& path) {
  if (info(path).kind == FileKind::directory) return;
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path clean = absolute.has_filename() ? absolute : absolute.parent_path();
  if (clean != clean.root_path()) make_directories(clean.parent_path());
  if (make_directory(clean)) sync_directory(clean.parent_path());
}

void Files::remove_tree(const fs::path& path) {
  const FileKind kind = info(path, false).kind;
  if (kind == FileKind::none) return;
  if (kind != FileKind::directory) return remove_file(path);
  for (const auto& item : list(path)) {
    if (item.kind == FileKind::directory)
      remove_tree(path / item.name);
    else
      remove_file(path / item.name);
  }
  remove_directory(path);
}

void Files::drop(const fs::path& path) noexcept {
  try {
    remove_file(path);
  } catch (...) {  // the first error counts
  }
}

void Files::replace_file(const fs::path& path, std::span<const std::byte> bytes) {
  replace_file_unsynced_name(path, bytes);
  sync_directory(parent_of(path));
}

void Files::replace_file_unsynced_name(const fs::path& path, std::span<const std::byte> bytes) {
  fs::path partial = path;
  partial += ".partial";
  try {
    OpenFile file = open(partial, OpenMode::replace);
    write_all(file, bytes);
    sync(file);
    close(std::move(file));
    rename(partial, path);
  } catch (const StorageError&) {
    drop(partial);
    throw;
  }
}

void Files::replace_file(const fs::path& path, std::string_view text) {
  replace_file(path, std::as_bytes(std::span(text)));
}

// ---------------------------------------------------------------- the operating system's

PosixFiles::Place PosixFiles::locate(const fs::path& path) const { return {AT_FDCWD, path.native()}; }

OpenFile PosixFiles::open(const fs::path& path, OpenMode mode) {
  const Place place = locate(path);
  const char* name = place.name.c_str();
  const auto open = [&](int flags) {
    return retry_interrupted([&] { return ::openat(place.directory, name, flags | O_CLOEXEC, 0600); });
  };
  int fd = -1;
  switch (mode) {
    // O_NONBLOCK changes nothing for regular files, but opening a named pipe would block forever without it.
    case OpenMode::read:
      fd = open(O_RDONLY | O_NONBLOCK | place.no_follow);
      break;
    case OpenMode::create:
      fd = open(O_WRONLY | O_CREAT | O_EXCL);
      break;
    case OpenMode::replace:
      fd = open_in_place(place.directory, name, O_WRONLY | O_CREAT | O_CLOEXEC);
      break;
    case OpenMode::append:
      fd = open(O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
      break;
  }
  if (fd < 0) throw_file_error(mode == OpenMode::create ? "create" : "open", path, errno);
  return {Descriptor(fd), path};
}

std::size_t PosixFiles::read(OpenFile& file, std::span<std::byte> into) {
  const auto count = retry_interrupted([&] { return ::read(file.fd.get(), into.data(), into.size()); });
  if (count < 0) throw_file_error("read", file.path, errno);
  return static_cast<std::size_t>(count);
}

std::size_t PosixFiles::write(OpenFile& file, std::span<const std::byte> bytes) {
  const auto count = retry_interrupted([&] { return ::write(file.fd.get(), bytes.data(), bytes.size()); });
  if (count < 0) throw_file_error("write", file.path, errno);
  if (count == 0 && !bytes.empty()) throw_file_error("write", file.path, EIO);
  return static_cast<std::size_t>(count);
}

void PosixFiles::reserve(OpenFile& file, std::uint64_t size) {
  if (size == 0) return;
  const auto result =
      retry_interrupted([&] { return ::fallocate(file.fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)); });
  // Many file systems cannot reserve space. Those that can report here that there is not enough.
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    throw_file_error("write", file.path, errno);
}

void PosixFiles::start_writeback(OpenFile& file, std::uint64_t offset, std::uint64_t size) {
  (void)::sync_file_range(file.fd.get(), static_cast<off64_t>(offset), static_cast<off64_t>(size),
                          SYNC_FILE_RANGE_WRITE);
}

void PosixFiles::sync(OpenFile& file) {
  if (retry_interrupted([&] { return ::fsync(file.fd.get()); }) != 0) throw_file_error("sync", file.path, errno);
}

void PosixFiles::close(OpenFile file) {
  // Linux closes the descriptor even if it returns EINTR.
  if (::close(file.fd.release()) != 0 && errno != EINTR) throw_file_error("close", file.path, errno);
}

bool PosixFiles::make_directory(const fs::path& path) {
  const Place place = locate(path);
  if (::mkdirat(place.directory, place.name.c_str(), 0700) == 0) return true;
  const int error = errno;
  if (error == EEXIST && info(path, false).kind == FileKind::directory) return false;
  throw_file_error("make the directory", path, error);
}

void PosixFiles::rename(const fs::path& from, const fs::path& to) {
  const Place old = locate(from), place = locate(to);
  if (::renameat(old.directory, old.name.c_str(), place.directory, place.name.c_str()) != 0)
    throw_file_error("rename " + in_quotes(from.native()) + " to", to, errno);
}

bool PosixFiles::link(const fs::path& from, const fs::path& to) {
  const Place old = locate(from), place = locate(to);
  if (::linkat(old.directory, old.name.c_str(), place.directory, place.name.c_str(), 0) == 0) return true;
  for (const int error : {EXDEV, EPERM, EACCES, EMLINK, EOPNOTSUPP, ENOSYS, ENOENT})
    if (errno == error) return false;
  throw_file_error("link " + in_quotes(from.native()) + " to", to, errno);
}

void PosixFiles::remove_file(const fs::path& path) {
  const Place place = locate(path);
  if (::unlinkat(place.directory, place.name.c_str(), 0) != 0) throw_file_error("remove", path, errno);
}

void PosixFiles::remove_directory(const fs::path& path) {
  const Place place = locate(path);
  if (::unlinkat(place.directory, place.name.c_str(), AT_REMOVEDIR) != 0)
    throw_file_error("remove the directory", path, errno);
}

void PosixFiles::sync_directory(const fs::path& path) {
  const Place place = locate(path);
  const Descriptor directory(open_directory(place.directory, place.name.c_str(), place.no_follow));
  if (!directory) throw_file_error("open the directory", path, errno);
  // Some network file systems cannot sync directories and return EINVAL.
  if (retry_interrupted([&] { return ::fsync(directory.get()); }) != 0 && errno != EINVAL)
    throw_file_error("sync the directory", path, errno);
}

std::vector<DirectoryItem> PosixFiles::list(const fs::path& path) {
  const Place place = locate(path);
  Descriptor opened(open_directory(place.directory, place.name.c_str(), place.no_follow));
  if (!opened) throw_file_error("list", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(opened.get()), ::closedir);
  if (!directory) throw_file_error("list", path, errno);
  (void)opened.release();
  std::vector<DirectoryItem> items;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") items.push_back({std::string(name), kind_of_entry(directory.get(), path, *entry)});
  }
  if (errno != 0) throw_file_error("list", path, errno);
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return items;
}

FileInfo PosixFiles::info(const fs::path& path, bool follow_links) {
  const Place place = locate(path);
  const bool follow = follow_links && place.no_follow == 0;
  struct stat status {};
  if (::fstatat(place.directory, place.name.c_str(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    throw_file_error("look at", path, errno);
  }
  return to_info(status);
}

Mapping PosixFiles::map(const fs::path& path) {
  const OpenFile file = open(path, OpenMode::read);
  const FileInfo info = info_of(file);
  if (info.kind != FileKind::file) throw_file_error("map", path, EINVAL);
  const auto size = static_cast<std::size_t>(info.size);
  if (size == 0) return {};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd.get(), 0);
  if (data == MAP_FAILED) throw_file_error("map", path, errno);
  return {data, size};
}

}  // namespace lockstep::sys
