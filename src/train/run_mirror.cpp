#include "train/run_mirror.h"

#include <lockstep/error.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "store/fetch.h"
#include "store/run_directory.h"
#include "store/tree.h"
#include "sys/files.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaging = ".lockstep-uploads";

/// The number in a checkpoint's path.
int seq_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  return std::stoi(name.substr(name.rfind('_') + 1));
}

/// Files of the run besides its checkpoints, by name. run.json comes last: it must not be ahead of the others.
std::vector<std::string> other_files(const fs::path& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator each(run, error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename().string();
    const bool is_skipped = name.starts_with('.') || name.ends_with(".partial") || name.ends_with(".trash") ||
                            name.ends_with(".tmp") || name == "stop_request" ||
                            (each.depth() == 0 && name.starts_with("checkpoint_"));
    std::error_code ignored;
    if (is_skipped && each->is_directory(ignored)) each.disable_recursion_pending();
    if (!is_skipped && each->is_regular_file(ignored) && !each->is_symlink(ignored))
      names.push_back(each->path().lexically_relative(run).native());
  }
  std::ranges::sort(names, {}, [](const std::string& name) { return std::pair(name == "run.json", name); });
  return names;
}

}  // namespace

RunMirror::RunMirror(store::Address run, fs::path directory, Seconds interval)
    : run_(std::move(run)), directory_(std::move(directory)), interval_(interval) {}

RunMirror::~RunMirror() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void RunMirror::on_start(const RunInfo&) {
  sys::files().remove_tree(directory_ / kStaging);  // of a driver that was killed
  sys::files().replace_file(directory_ / store::kMirrored, std::string_view());
  const store::RunDirectory run(directory_);
  for (const int seq : run.checkpoints()) staged_.emplace(seq, run.checkpoint_path(seq));
  thread_ = std::thread([this] { this->run(); });
}

void RunMirror::on_checkpoint(const Checkpoint& checkpoint, const Value&) {
  const auto path = checkpoint.path();
  if (!path) return;
  const int seq = seq_of(*path);
  // Links, because the run may remove the checkpoint before it is uploaded.
  sys::Files& files = sys::files();
  const fs::path place = directory_ / kStaging / path->filename();
  bool linked = true;
  for (const auto& file : store::list_tree(files, *path, store::Links::keep)) {
    files.make_directories((place / file.name).parent_path());
    linked = linked && files.link(file.path, place / file.name);
  }
  if (!linked) files.remove_tree(place);
  const std::lock_guard lock(mutex_);
  staged_.insert_or_assign(seq, linked ? place : *path);
  news_ = true;
  changed_.notify_all();
}

void RunMirror::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
  if (!error_.empty()) throw StorageError(error_);
}

void RunMirror::run() {
  for (bool last = false; !last;) {
    {
      const std::lock_guard lock(mutex_);
      last = ending_;
      news_ = false;
    }
    std::string error;
    try {
      round(last);
    } catch (const std::exception& failed) {
      error = failed.what();
    }
    std::unique_lock lock(mutex_);
    if (!error.empty() && error_.empty() && !last)
      log_warning(error + "; the run continues, and the upload is tried again");
    error_ = error;
    // After an error, another checkpoint is no reason to hurry.
    if (!last) changed_.wait_until(lock, now() + ticks(interval_), [&] { return ending_ || (news_ && error.empty()); });
  }
}

void RunMirror::round(bool last) {
  begin();
  upload_checkpoints();
  retire_checkpoints();
  upload_files();
  if (last) sys::files().remove_tree(directory_ / kStaging);
}

/// Removes what a killed driver left in the store.
void RunMirror::begin() {
  if (begun_) return;
  store_.clean(run_);
  for (const auto& entry : store_.list(run_, false))
    if (entry.is_directory && entry.name.starts_with("checkpoint_")) there_.insert(seq_of(entry.name));
  begun_ = true;
}

std::map<int, fs::path> RunMirror::staged() {
  const std::lock_guard lock(mutex_);
  return staged_;
}

void RunMirror::unstage(int seq) {
  fs::path path;
  {
    const std::lock_guard lock(mutex_);
    path = staged_[seq];
    staged_.erase(seq);
  }
  if (path.parent_path().filename() == kStaging) sys::files().remove_tree(path);
}

void RunMirror::upload_checkpoints() {
  // A checkpoint may reach the directory without on_checkpoint(), if it was in memory first.
  {
    const store::RunDirectory run(directory_);
    const auto committed = run.checkpoints();
    const std::lock_guard lock(mutex_);
    for (const int seq : committed)
      if (!there_.contains(seq)) staged_.emplace(seq, run.checkpoint_path(seq));
  }
  std::exception_ptr failed;
  std::set<int> tried;
  for (auto waiting = staged(); !waiting.empty(); waiting = staged()) {
    std::erase_if(waiting, [&](const auto& each) { return tried.contains(each.first); });
    if (waiting.empty()) break;
    const auto [seq, path] = *waiting.begin();
    tried.insert(seq);
    try {
      // One that was removed here meanwhile is not needed, unless it is the newest.
      const auto kept = store::RunDirectory(directory_).checkpoints();
      const bool wanted = waiting.size() == 1 || std::ranges::find(kept, seq) != kept.end();
      const bool is_here = sys::files().info(path / store::kManifestName).kind == sys::FileKind::file;
      if (wanted && is_here && !there_.contains(seq)) {
        store_.put_checkpoint(path, run_ / store::RunDirectory::checkpoint_name(seq));
        there_.insert(seq);
        retire_checkpoints();
      }
      unstage(seq);
    } catch (const StorageError&) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

void RunMirror::retire_checkpoints() {
  const auto kept = store::RunDirectory(directory_).checkpoints();
  for (auto each = there_.begin(); each != there_.end() && *each != *there_.rbegin();) {
    if (std::ranges::find(kept, *each) != kept.end()) {
      ++each;
      continue;
    }
    store_.remove_checkpoint(run_ / store::RunDirectory::checkpoint_name(*each));
    each = there_.erase(each);
  }
}

void RunMirror::upload_files() {
  std::map<std::string, std::pair<std::uintmax_t, fs::file_time_type>> changed;
  std::vector<std::string> names;
  for (const std::string& name : other_files(directory_)) {
    std::error_code gone;
    const std::pair now{fs::file_size(directory_ / name, gone), fs::last_write_time(directory_ / name, gone)};
    const auto known = uploaded_.find(name);
    if (gone || (known != uploaded_.end() && known->second == now)) continue;
    changed.emplace(name, now);
    names.push_back(name);
  }
  const bool has_record = !names.empty() && names.back() == "run.json";
  if (has_record) names.pop_back();
  store_.put_files(directory_, run_, names);
  if (has_record) store_.put_files(directory_, run_, {"run.json"});
  for (auto& [name, state] : changed) uploaded_.insert_or_assign(name, state);
}

}  // namespace lockstep::train
