#include "sys/private_files.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <pwd.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kOthersWrite = S_IWGRP | S_IWOTH;

std::string user_text(uid_t user) {
  struct passwd entry {};
  struct passwd* found = nullptr;
  std::array<char, 4096> buffer;
  const bool known = ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
  return (known ? in_quotes(found->pw_name) + " " : "") + "(uid " + std::to_string(user) + ")";
}

std::string mode_text(std::uint32_t mode) {
  std::array<char, 8> text;
  return {text.data(), static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%04o", mode & 07777U))};
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw StorageError("[storage] " + in_quotes(path.native()) + " is not used: " + why);
}

/// The part of `path` after `base`; nothing if it does not begin with it.
std::optional<std::string_view> below(const fs::path& base, const fs::path& path) {
  const std::string_view whole = path.native(), begin = base.native();
  if (!whole.starts_with(begin)) return std::nullopt;
  const std::string_view rest = whole.substr(begin.size());
  return rest.empty() || rest.front() == '/' ? std::optional(rest) : std::nullopt;
}

std::string_view without_slashes(std::string_view text) {
  while (text.starts_with('/')) text.remove_prefix(1);
  while (text.ends_with('/')) text.remove_suffix(1);
  return text;
}

bool is_link(int directory, const std::string& name) {
  struct stat status {};
  return ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

void check(const FileInfo& info, const fs::path& path, bool trusted) {
  if (info.kind == FileKind::symlink)
    refuse(path,
           "it is a link, and links are not followed in run directories; remove it, or give the path it leads to");
  if (info.kind != FileKind::file && info.kind != FileKind::directory)
    refuse(path, "it is neither a file nor a directory; remove it");
  const uid_t user = ::geteuid();
  if (info.owner != user && !trusted)
    refuse(path, "it belongs to the user " + user_text(info.owner) + " (mode " + mode_text(info.mode) +
                     "), not to you, " + user_text(user) +
                     ", and could change while you use it; choose another name or storage_path. To continue "
                     "somebody else's run that you trust, copy it (cp -r) and restore the copy");
  if ((info.mode & kOthersWrite) != 0 && !trusted)
    refuse(path, "other users can write to it (owner " + user_text(info.owner) + ", mode " + mode_text(info.mode) +
                     "), and could change it while you use it; choose another name or storage_path, or, if you trust "
                     "what is in it: chmod -R go-w " +
                     in_quotes(path.native()));
}

}  // namespace

bool storage_is_trusted() {
  const char* given = std::getenv("LOCKSTEP_TRUST_STORAGE");
  return given != nullptr && std::string_view(given) == "1";
}

void check_private(const FileInfo& info, const fs::path& path) { check(info, path, storage_is_trusted()); }

void PrivateFiles::enter(const fs::path& root) {
  Descriptor opened(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) {
    const int error = errno;
    if (const FileInfo found = info(root, false); found.kind != FileKind::none) check(found, root, trusted_);
    throw_file_error("open the directory", root, error);
  }
  OpenFile directory{std::move(opened), root};
  check(info_of(directory), root, trusted_);
  directory_ = std::move(directory.fd);
  root_ = root.has_filename() ? root : root.parent_path();  // without a trailing slash
}

OpenFile PrivateFiles::open(const fs::path& path, OpenMode mode) {
  OpenFile file = PosixFiles::open(path, mode);
  const bool existed = mode == OpenMode::read || mode == OpenMode::append;
  if (existed && directory_ && below(root_, path)) check(info_of(file), path, trusted_);
  return file;
}

PosixFiles::Place PrivateFiles::locate(const fs::path& path) const {
  const auto inside = directory_ ? below(root_, path) : std::nullopt;
  if (!inside) return PosixFiles::locate(path);
  std::string_view rest = without_slashes(*inside);
  if (rest.empty()) return {directory_.get(), ".", O_NOFOLLOW};
  Place place{directory_.get(), {}, O_NOFOLLOW};
  for (std::size_t end = 0; (end = rest.find('/')) != std::string_view::npos;
       rest = without_slashes(rest.substr(end))) {
    const std::string name(rest.substr(0, end));
    if (name == "..") refuse(path, "it leads out of the run directory");
    Descriptor next(::openat(place.directory, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) {
      if (errno != ENOENT && is_link(place.directory, name))
        refuse(path, in_quotes(name) + " on the way to it is a link");
      break;  // using the path raises the system's own error
    }
    place.owned = std::move(next);
    place.directory = place.owned.get();
  }
  place.name = rest;
  if (place.name == "..") refuse(path, "it leads out of the run directory");
  return place;
}

}  // namespace lockstep::sys
