#include "store/run_directory.h"

#include <lockstep/error.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "store/run_record.h"
#include "store/stop_request.h"
#include "store/tree.h"
#include "store/verify.h"
#include "sys/private_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using sys::FileKind;

constexpr std::string_view kPrefix = "checkpoint_";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kTrash = ".trash";
constexpr std::string_view kRunJson = "run.json";

struct CheckpointName {
  int seq = 0;
  std::string_view ending;  ///< ".partial", ".trash", or nothing
};

std::optional<CheckpointName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  CheckpointName parsed;
  const auto result = std::from_chars(begin, end, parsed.seq);
  if (result.ec != std::errc() || parsed.seq < 0 || parsed.seq == std::numeric_limits<int>::max()) return std::nullopt;
  parsed.ending = std::string_view(result.ptr, static_cast<std::size_t>(end - result.ptr));
  if (!parsed.ending.empty() && !parsed.ending.starts_with('.')) return std::nullopt;
  return parsed;
}

bool is_name_of_a_run(std::string_view name) {
  static const std::set<std::string_view> kNames = {kRunJson,       "params.json",      "function.pkl", "result.json",
                                                    "progress.csv", "progress.csv.tmp", "logs",         kStopRequest};
  return kNames.contains(name) || name.starts_with(kPrefix) || name.starts_with("events.out.tfevents.") ||
         name.ends_with(kPartial) || name.ends_with(kTrash);
}

}  // namespace

fs::path default_storage_path() {
  const char* given = std::getenv("LOCKSTEP_STORAGE_PATH");
  const std::string path = given != nullptr && *given != '\0' ? given : "~/lockstep_results";
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    throw ConfigError("[storage] HOME is not set; set LOCKSTEP_STORAGE_PATH or give a directory");
  return home + path.substr(1);
}

bool RunDirectory::exists() const { return files_.info(path_ / kRunJson).kind == FileKind::file; }

void RunDirectory::create() {
  if (exists())
    throw ConfigError("[run_directory] there is a run in " + in_quotes(path_.native()) +
                      " already; choose another name, or restore that run to continue it");
  const auto info = files_.info(path_, false);
  if (info.kind != FileKind::none) {
    sys::check_private(info, path_);
    if (info.kind != FileKind::directory || !is_unused())
      throw ConfigError("[run_directory] " + in_quotes(path_.native()) +
                        " exists already and is neither a run nor an empty directory; choose another name");
  }
  files_.make_directories(path_);
  make_logs();
}

bool RunDirectory::is_unused() const {
  // A driver that was killed before it wrote run.json leaves an empty logs/ and some of these.
  static const std::set<std::string> kEarlier = {"params.json", "function.pkl", "run.json.partial",
                                                 "params.json.partial", "function.pkl.partial"};
  for (const auto& item : files_.list(path_)) {
    sys::check_private(files_.info(path_ / item.name, false), path_ / item.name);
    if (kEarlier.contains(item.name) && item.kind == FileKind::file) continue;
    if (item.name != "logs" || item.kind != FileKind::directory || !files_.list(logs()).empty()) return false;
  }
  return true;
}

void RunDirectory::open() {
  if (!exists())
    throw ConfigError("[run_directory] there is no run in " + in_quotes(path_.native()) +
                      " (no run.json); check the path");
  check_owner();
  make_logs();
}

void RunDirectory::check_owner() const {
  sys::check_private(files_.info(path_, false), path_);
  for (const auto& item : files_.list(path_))
    if (is_name_of_a_run(item.name)) check_owner_below(path_ / item.name);
}

void RunDirectory::check_owner_below(const fs::path& path) const {
  const auto info = files_.info(path, false);
  if (info.kind == FileKind::none) return;
  sys::check_private(info, path);
  if (info.kind != FileKind::directory) return;
  for (const auto& item : files_.list(path)) check_owner_below(path / item.name);
}

void RunDirectory::lock() {
  lock_ = sys::DirectoryLock::take(path_);
  if (lock_) return;
  std::string ignored;
  const int pid = exists() ? RunRecord::from_value(read_run_json(), &ignored).driver.pid : 0;
  throw ConfigError("[run_directory] the run in " + in_quotes(path_.native()) + " is used by another process" +
                    (pid != 0 ? " (pid " + std::to_string(pid) + ")" : "") + "; wait for its end or stop it first");
}

void RunDirectory::make_logs() { files_.make_directory(logs()); }

fs::path RunDirectory::file_path(std::string_view name) const {
  if (name.find('/') != std::string_view::npos || !file_name_problem(name).empty())
    throw InternalError("[run_directory] " + in_quotes(name) + " is not allowed as the name of a file of a run");
  return path_ / name;
}

void RunDirectory::write_run_json(const Value& run) { files_.replace_file(file_path(kRunJson), to_pretty_json(run)); }

Value RunDirectory::read_json(std::string_view name) const {
  const auto path = file_path(name);
  return parse_json(files_.read_text(path), in_quotes(path.native()));
}

void RunDirectory::write_file(std::string_view name, std::span<const std::uint8_t> bytes) {
  files_.replace_file_unsynced_name(file_path(name), std::as_bytes(bytes));
}

void RunDirectory::write_file(std::string_view name, std::string_view text) {
  files_.replace_file_unsynced_name(file_path(name), std::as_bytes(std::span(text)));
}

Bytes RunDirectory::read_file(std::string_view name) const { return files_.read_file(file_path(name)); }

bool RunDirectory::has_file(std::string_view name) const { return files_.info(file_path(name)).kind == FileKind::file; }

std::string RunDirectory::checkpoint_name(int seq) {
  if (seq < 0) throw InternalError("[checkpoint] a checkpoint cannot have the number " + std::to_string(seq));
  const std::string digits = std::to_string(seq);
  return std::string(kPrefix) + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}

std::string RunDirectory::partial_name(int seq) { return checkpoint_name(seq) + std::string(kPartial); }

std::vector<int> RunDirectory::checkpoint_directories() const {
  std::vector<int> seqs;
  for (const auto& item : files_.list(path_)) {
    const auto name = parse_name(item.name);
    // Skip names that we do not write, such as "checkpoint_7": checkpoint_path(7) would not find it.
    if (name && item.kind == FileKind::directory && item.name == checkpoint_name(name->seq)) seqs.push_back(name->seq);
  }
  std::sort(seqs.begin(), seqs.end());
  return seqs;
}

std::vector<int> RunDirectory::checkpoints() const {
  std::vector<int> seqs = checkpoint_directories();
  std::erase_if(seqs,
                [&](int seq) { return files_.info(checkpoint_path(seq) / kManifestName).kind != FileKind::file; });
  return seqs;
}

int RunDirectory::next_seq() const {
  int next = 0;
  for (const auto& item : files_.list(path_))
    if (const auto name = parse_name(item.name)) next = std::max(next, name->seq + 1);
  return next;
}

void RunDirectory::remove_partials() {
  for (const auto& item : files_.list(path_))
    if (item.name.ends_with(kPartial) || item.name.ends_with(kTrash)) files_.remove_tree(path_ / item.name);
}

fs::path RunDirectory::commit(std::string_view partial, const Manifest& manifest) {
  const auto name = parse_name(partial);
  const bool is_partial = partial.size() > kPartial.size() && partial.ends_with(kPartial) &&
                          partial.find('/') == std::string_view::npos && (!name || name->seq == manifest.seq);
  if (!is_partial)
    throw StorageError("[checkpoint] " + in_quotes(partial) + " is not a directory from which checkpoint " +
                       std::to_string(manifest.seq) + " can be committed");
  const fs::path from = path_ / partial;
  const fs::path to = checkpoint_path(manifest.seq);
  const std::string text = to_text(manifest);
  if (const auto problems = compare_sizes(from, manifest.files, files_); !problems.empty())
    throw StorageError("[checkpoint] " + in_quotes(from.native()) + " does not match what the workers reported: " +
                       to_text(problems) + "; the checkpoint is not committed");
  if (files_.info(to, false).kind != FileKind::none)
    throw StorageError("[checkpoint] " + in_quotes(to.native()) + " exists already; the checkpoint is not committed");

  // Nothing reads a `.partial` directory, so the manifest needs no temporary name.
  sys::OpenFile file = files_.open(from / kManifestName, sys::OpenMode::replace);
  files_.write_all(file, std::as_bytes(std::span(text)));
  files_.sync(file);
  files_.close(std::move(file));
  files_.sync_directory(from);
  files_.rename(from, to);
  files_.sync_directory(path_);
  return to;
}

void RunDirectory::add_metrics(int seq, const Value& metrics) {
  Manifest manifest = checkpoint(seq).manifest;
  manifest.metrics.update(metrics);
  manifest.validated = true;
  const std::string text = to_text(manifest);
  // Beside the checkpoint: it must not hold a file that is not in its manifest.
  const fs::path place = path_ / ("." + checkpoint_name(seq) + ".manifest.tmp");
  sys::OpenFile file = files_.open(place, sys::OpenMode::replace);
  files_.write_all(file, std::as_bytes(std::span(text)));
  files_.sync(file);
  files_.close(std::move(file));
  files_.rename(place, checkpoint_path(seq) / kManifestName);
  files_.sync_directory(checkpoint_path(seq));
}

void RunDirectory::remove_checkpoint(int seq) {
  const fs::path from = checkpoint_path(seq);
  if (files_.info(from, false).kind == FileKind::none) return;
  const fs::path trash = path_ / (checkpoint_name(seq) + std::string(kTrash));
  files_.remove_tree(trash);
  files_.rename(from, trash);
  // Make this durable before the first file is removed: after a power cut the name must not be back with half of its
  // files.
  files_.sync_directory(path_);
  files_.remove_tree(trash);
}

CommittedCheckpoint RunDirectory::checkpoint(int seq) const {
  const fs::path path = checkpoint_path(seq);
  return {seq, path, read_manifest(files_, path)};
}

std::optional<CommittedCheckpoint> RunDirectory::latest_good(const std::function<void(std::string)>& warn) const {
  const auto seqs = checkpoint_directories();
  for (auto seq = seqs.rbegin(); seq != seqs.rend(); ++seq) {
    const auto problems = verify_checkpoint(checkpoint_path(*seq), files_);
    if (problems.empty()) return checkpoint(*seq);
    if (const auto found = std::ranges::find(problems, true, &Problem::unreadable); found != problems.end())
      throw StorageError("[checkpoint] " + checkpoint_name(*seq) +
                         " cannot be read, but may be intact: " + found->file + " " + found->what);
    warn(checkpoint_name(*seq) + " is damaged (" + to_text(problems) + "); " +
         (std::next(seq) == seqs.rend() ? "there is no earlier one" : "trying " + checkpoint_name(*std::next(seq))));
  }
  if (seqs.empty()) return std::nullopt;
  throw NoUsableCheckpoint("[checkpoint] every checkpoint in " + in_quotes(path_.native()) +
                           " is damaged (`lockstep checkpoint verify` shows how). Without one the run would begin at "
                           "its first step; move the directories checkpoint_* away to begin there, or give "
                           "resume_from_checkpoint to restore()");
}

}  // namespace lockstep::store
