#include "storage/checkpoints.h"

#include <lockstep/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "storage/objects.h"
#include "storage/parallel.h"
#include "store/manifest.h"
#include "store/tree.h"
#include "store/verify.h"
#include "sys/files.h"

namespace lockstep::storage {
namespace {

namespace fs = std::filesystem;

/// Large files go in parts already; memory is bounded by both.
constexpr std::size_t kFilesAtOnce = 4;

std::string manifest_name() { return std::string(store::kManifestName); }

/// Files below `place` that the manifest does not have, and those that differ in size, are not what was uploaded.
void settle_files(const store::Manifest& manifest, const Place& place, Instant deadline) {
  std::map<std::string, std::uint64_t> there;
  for (const auto& entry : list(place, true, deadline))
    if (!entry.is_directory) there.emplace(entry.name, entry.size);
  for (const FileEntry& file : manifest.files) {
    const auto found = there.find(file.name);
    if (found == there.end() || found->second != static_cast<std::uint64_t>(file.size))
      throw StorageError("[storage] " + (place / file.name).shown.text() +
                         " is not what was uploaded; the checkpoint is not committed");
    there.erase(found);
  }
  for (const auto& [name, size] : there) remove_object(place / name, deadline);  // of a dead attempt
}

/// What a local directory already has of a checkpoint.
bool is_complete(const fs::path& directory, const std::string& manifest) {
  sys::Files& files = sys::files();
  const fs::path file = directory / store::kManifestName;
  return files.info(file).kind == sys::FileKind::file && files.read_text(file) == manifest &&
         store::verify_checkpoint(directory).empty();
}

}  // namespace

void put_checkpoint(const fs::path& from, const Place& to, Instant deadline) {
  const store::Manifest manifest = store::read_manifest(sys::files(), from);
  const std::string text = sys::files().read_text(from / store::kManifestName);
  if (const auto there = get_text(to / manifest_name(), deadline)) {
    if (*there == text) return;
    throw StorageError("[storage] " + to.shown.text() + " is another checkpoint already; it is not replaced");
  }
  in_parallel(manifest.files.size(), kFilesAtOnce, [&](std::size_t number) {
    const FileEntry& file = manifest.files[number];
    put_file(from / file.name, to / file.name, deadline, &file);
  });
  settle_files(manifest, to, deadline);
  put_text(text, to / manifest_name(), deadline);
}

bool get_checkpoint(const Place& from, const fs::path& to, Instant deadline) {
  const auto text = get_text(from / manifest_name(), deadline);
  if (!text) return false;
  const store::Manifest manifest = store::parse_manifest(*text, in_quotes(from.shown.text()));
  if (is_complete(to, *text)) return true;
  sys::Files& files = sys::files();
  const fs::path partial = to.native() + ".partial";
  files.remove_tree(partial);
  files.make_directories(partial);
  for (const FileEntry& file : manifest.files) files.make_directories((partial / file.name).parent_path());
  in_parallel(manifest.files.size(), kFilesAtOnce, [&](std::size_t number) {
    const FileEntry& file = manifest.files[number];
    if (!get_file(from / file.name, partial / file.name, deadline, &file))
      throw StorageError("[storage] " + (from / file.name).shown.text() +
                         " is missing, although the checkpoint's manifest lists it");
  });
  files.replace_file(partial / store::kManifestName, *text);
  files.remove_tree(to);
  files.rename(partial, to);
  files.sync_directory(to.parent_path());
  return true;
}

void remove_checkpoint(const Place& place, Instant deadline) {
  remove_object(place / manifest_name(), deadline);
  remove_below(place, deadline);
}

int remove_unfinished(const Place& run, Instant deadline) {
  std::set<std::string> directories, committed;
  for (const auto& entry : list(run, true, deadline)) {
    if (!entry.name.starts_with("checkpoint_")) continue;
    const auto slash = entry.name.find('/');
    if (slash == std::string::npos && !entry.is_directory) continue;
    const std::string directory = entry.name.substr(0, slash);
    directories.insert(directory);
    if (entry.name == directory + "/" + manifest_name()) committed.insert(directory);
  }
  int removed = 0;
  for (const std::string& directory : directories) {
    if (committed.contains(directory)) continue;
    remove_below(run / directory, deadline);
    ++removed;
  }
  return removed;
}

}  // namespace lockstep::storage
