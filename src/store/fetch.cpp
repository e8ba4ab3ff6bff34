#include "store/fetch.h"

#include <lockstep/error.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "store/manifest.h"
#include "store/object_store.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "store/tree.h"
#include "sys/directory_lock.h"
#include "sys/files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecordFile = "run.json";

/// The driver of this run is on this machine, or its directory cannot be told from one.
bool is_live(const fs::path& local) {
  return sys::files().info(local).kind == sys::FileKind::directory &&
         sys::DirectoryLock::is_held(local).value_or(false);
}

bool is_of_checkpoint(const std::string& name) { return name.starts_with("checkpoint_"); }

std::set<std::string> checkpoints_in(const std::vector<RemoteEntry>& entries) {
  std::set<std::string> names;
  for (const RemoteEntry& each : entries) {
    const auto slash = each.name.find('/');
    if (is_of_checkpoint(each.name) && slash != std::string::npos && each.name.substr(slash + 1) == kManifestName)
      names.insert(each.name.substr(0, slash));
  }
  return names;
}

std::optional<RunRecord> record_in(const fs::path& file) {
  if (sys::files().info(file).kind != sys::FileKind::file) return std::nullopt;
  try {
    std::string ignored;
    return RunRecord::from_value(parse_json(sys::files().read_text(file), in_quotes(file.native())), &ignored);
  } catch (const StorageError&) {
    return std::nullopt;
  }
}

/// Whether what is here was written by the driver that also wrote what the store has, and is at least as new.
bool is_newer_here(const fs::path& local, const fs::path& fetched) {
  if (sys::files().info(local / kMirrored).kind != sys::FileKind::file) return false;
  const auto here = record_in(local / kRecordFile), there = record_in(fetched);
  return here && there && here->experiment_id == there->experiment_id && here->attempt >= there->attempt &&
         here->driver.hostname == there->driver.hostname && here->driver.pid == there->driver.pid &&
         here->driver.start_ticks == there->driver.start_ticks && here->updated >= there->updated;
}

/// Downloads run.json beside the one that is here, if there is one. Returns false if the store has none.
bool fetch_beside(ObjectStore& store, const Address& run, const fs::path& beside) {
  sys::files().make_directories(beside);
  return store.get_files(run, beside, {kRecordFile}).empty();
}

void drop_checkpoints_but(const fs::path& local, const std::set<std::string>& kept) {
  for (const auto& item : sys::files().list(local))
    if (is_of_checkpoint(item.name) && !kept.contains(item.name)) sys::files().remove_tree(local / item.name);
}

/// A small directory for files that are compared before they are taken.
fs::path beside(const fs::path& local) { return local / ".lockstep-fetched"; }

}  // namespace

bool remote_run_exists(const Address& run) {
  const auto entries = ObjectStore(kQuestionPatience).list(run, false);
  return std::ranges::any_of(entries, [](const RemoteEntry& each) { return each.name == kRecordFile; });
}

std::optional<fs::path> fetch_run(const Address& run) {
  const fs::path local = cached(run);
  if (is_live(local)) return local;
  ObjectStore store;
  const auto entries = store.list(run, true);
  if (std::ranges::none_of(entries, [](const RemoteEntry& each) { return each.name == kRecordFile; }))
    return std::nullopt;
  sys::Files& files = sys::files();
  files.make_directories(local / "logs");
  if (!fetch_beside(store, run, beside(local))) return std::nullopt;
  const bool newer = is_newer_here(local, beside(local) / kRecordFile);
  files.remove_tree(beside(local));
  const auto checkpoints = checkpoints_in(entries);
  if (!newer) drop_checkpoints_but(local, checkpoints);
  std::vector<std::string> wanted;
  for (const RemoteEntry& each : entries) {
    const bool is_there = files.info(local / each.name).kind == sys::FileKind::file;
    if (!each.is_directory && !is_of_checkpoint(each.name) && !each.name.starts_with('.') && !(newer && is_there))
      wanted.push_back(each.name);
  }
  for (const std::string& name : checkpoints) store.get_checkpoint(run / name, local / name);
  // With run.json the copy is a run.
  std::erase(wanted, kRecordFile);
  store.get_files(run, local, wanted);
  if (!newer) {
    files.remove_tree(local / kMirrored);
    store.get_files(run, local, {kRecordFile});
  }
  return local;
}

std::optional<fs::path> fetch_record(const Address& run) {
  const fs::path local = cached(run);
  if (is_live(local)) return local;
  ObjectStore store;
  if (!fetch_beside(store, run, beside(local))) {
    sys::files().remove_tree(beside(local));
    return std::nullopt;
  }
  if (!is_newer_here(local, beside(local) / kRecordFile))
    sys::files().rename(beside(local) / kRecordFile, local / kRecordFile);
  sys::files().remove_tree(beside(local));
  return local;
}

std::optional<fs::path> fetch_logs(const Address& run) {
  const auto local = fetch_record(run);
  if (!local || is_live(*local)) return local;
  ObjectStore store;
  std::vector<std::string> names;
  for (const RemoteEntry& each : store.list(run / "logs", true))
    if (!each.is_directory) names.push_back("logs/" + each.name);
  store.get_files(run, *local, names);
  return local;
}

std::optional<fs::path> fetch_manifests(const Address& run) {
  const fs::path local = cached(run);
  if (is_live(local)) return local;
  ObjectStore store;
  const auto entries = store.list(run, true);
  if (std::ranges::none_of(entries, [](const RemoteEntry& each) { return each.name == kRecordFile; }))
    return std::nullopt;
  const fs::path manifests = local / ".lockstep-manifests";
  sys::files().remove_tree(manifests);
  sys::files().make_directories(manifests);
  std::vector<std::string> names;
  for (const std::string& name : checkpoints_in(entries)) names.push_back(name + "/" + std::string(kManifestName));
  store.get_files(run, manifests, names);
  return manifests;
}

std::size_t count_checkpoints(const fs::path& run) {
  const auto address = address_of(run);
  if (!address || is_live(run)) return RunDirectory(run).checkpoints().size();
  return checkpoints_in(ObjectStore(kQuestionPatience).list(*address, true)).size();
}

std::optional<fs::path> fetch_checkpoint(const Address& checkpoint) {
  fs::path local = cached(checkpoint);
  if (is_live(local.parent_path()) && sys::files().info(local / kManifestName).kind == sys::FileKind::file)
    return local;
  sys::files().make_directories(local.parent_path());
  ObjectStore store;
  if (store.get_checkpoint(checkpoint, local)) return local;
  // A directory that was uploaded without a manifest.
  std::vector<std::string> names;
  for (const RemoteEntry& each : store.list(checkpoint, true))
    if (!each.is_directory) names.push_back(each.name);
  if (names.empty()) return std::nullopt;
  const fs::path partial = local.native() + ".partial";
  sys::files().remove_tree(partial);
  sys::files().make_directories(partial);
  store.get_files(checkpoint, partial, names);
  sys::files().remove_tree(local);
  sys::files().rename(partial, local);
  return local;
}

std::vector<fs::path> fetch_records_below(const Address& storage) {
  std::vector<fs::path> runs;
  for (const RemoteEntry& each : ObjectStore(kQuestionPatience).list(storage, false))
    if (each.is_directory && !each.name.starts_with('.'))
      if (auto run = fetch_record(storage / each.name)) runs.push_back(*std::move(run));
  return runs;
}

void upload_directory(const fs::path& from, const Address& to) {
  ObjectStore store;
  std::vector<std::string> names;
  for (const TreeFile& file : list_tree(sys::files(), from, Links::follow_inside)) {
    if (file.name == kManifestName) return store.put_checkpoint(from, to);
    names.push_back(file.name);
  }
  store.put_files(from, to, names);
}

}  // namespace lockstep::store
