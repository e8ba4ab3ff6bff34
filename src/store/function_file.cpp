#include "store/function_file.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "store/run_directory.h"
#include "store/run_record.h"
#include "sys/private_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using sys::FileKind;

constexpr std::string_view kEnding = ".pkl";

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool has_contents(sys::Files& files, const fs::path& path, std::span<const std::byte> bytes) {
  const auto info = files.info(path, false);
  if (info.kind != FileKind::file || info.size != bytes.size()) return false;
  sys::check_private(info, path);
  const auto mapping = files.map(path);
  return mapping.bytes().size() == bytes.size() && std::memcmp(mapping.bytes().data(), bytes.data(), bytes.size()) == 0;
}

/// The directory of shared functions; nothing if it is missing or not private to this user.
std::optional<fs::path> shared_directory(sys::Files& files, const fs::path& storage_path, bool make) {
  fs::path path = storage_path;
  try {
    for (const char* part : {".lockstep", "functions"}) {
      path /= part;
      if (make) files.make_directory(path);
      const auto info = files.info(path, false);
      if (info.kind != FileKind::directory) return std::nullopt;
      sys::check_private(info, path);
    }
  } catch (const StorageError&) {
    return std::nullopt;  // then each run has its own file
  }
  return path;
}

/// Links `path` to `shared`; returns false, and changes nothing, if that does not give these contents.
bool take(sys::Files& files, const fs::path& shared, const fs::path& path, std::span<const std::byte> bytes) {
  const fs::path partial = fs::path(path) += ".partial";
  files.remove_tree(partial);
  if (!files.link(shared, partial)) return false;
  try {
    // Check it under its new name: nobody else can replace a file in the run directory.
    if (has_contents(files, partial, bytes)) {
      files.rename(partial, path);
      files.sync_directory(path.parent_path());
      return true;
    }
  } catch (const StorageError&) {
    // Not this user's, or not readable: do not use it.
  }
  files.remove_file(partial);
  files.remove_file(shared);
  return false;
}

std::uint64_t remove_unused(sys::Files& files, const fs::path& directory) {
  std::uint64_t freed = 0;
  for (const auto& item : files.list(directory)) {
    const auto info = files.info(directory / item.name, false);
    if (info.kind != FileKind::file || info.names != 1 || !item.name.ends_with(kEnding)) continue;
    files.remove_file(directory / item.name);
    freed += info.size;
  }
  return freed;
}

}  // namespace

void write_function(sys::Files& files, const fs::path& run, std::span<const std::uint8_t> function,
                    const std::string& sha256) {
  const auto bytes = std::as_bytes(function);
  const fs::path path = run / "function.pkl";
  if (has_contents(files, path, bytes)) return;
  const bool share = bytes.size() >= kSharedFunction && is_sha256(sha256);
  const auto directory = share ? shared_directory(files, run.parent_path(), true) : std::nullopt;
  const fs::path shared = directory ? *directory / (sha256 + std::string(kEnding)) : fs::path();
  try {
    if (directory && take(files, shared, path, bytes)) return;
  } catch (const StorageError&) {
    // Sharing only saves space; the run works without it.
  }
  files.replace_file_unsynced_name(path, bytes);
  if (!directory) return;
  try {
    remove_unused(files, *directory);
    // It has two links from the start, so that another driver does not remove it as unused.
    files.link(path, shared);
  } catch (const StorageError&) {
    // As above.
  }
}

SavedFunction read_function(const fs::path& run) {
  sys::PrivateFiles files;
  files.enter(run);
  const RunDirectory directory(run, files);
  const auto record = RunRecord::from_value(directory.read_run_json());
  SavedFunction saved{directory.read_file("function.pkl"), {}};
  for (const std::string& sha256 : {record.function_sha256, record.function_sha256_next})
    if (!sha256.empty()) saved.sha256.push_back(sha256);
  return saved;
}

std::uint64_t remove_unused_functions(const fs::path& storage_path, sys::Files& files) {
  const auto directory = shared_directory(files, storage_path, false);
  return directory ? remove_unused(files, *directory) : 0;
}

}  // namespace lockstep::store
