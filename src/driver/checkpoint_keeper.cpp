#include "driver/checkpoint_keeper.h"

#include <lockstep/array.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "driver/validations.h"
#include "metrics/autofill.h"
#include "metrics/flatten.h"
#include "store/hash.h"
#include "store/part_writer.h"
#include "store/score.h"
#include "store/shared_checkpoint.h"
#include "sys/private_files.h"
#include "sys/shared_memory.h"

namespace lockstep::driver {
namespace {

/// The names of numbers that checkpoint_score_attribute could use.
std::vector<std::string> score_names(const Value& metrics, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name, const Value& value) {
    const bool known = std::ranges::find(names, name) != names.end();
    if (value.is_number() && !known && !metrics::is_autofilled(name.substr(0, name.find('/'))))
      names.emplace_back(name);
  };
  std::string prefix;
  metrics::for_each_leaf(metrics, prefix, add);
  const auto files = checkpoint.files();
  if (std::ranges::find(files, "data.json") != files.end()) metrics::for_each_leaf(checkpoint.to_dict(), prefix, add);
  return names;
}

std::vector<store::RankFiles> files_by_rank(const std::vector<CheckpointPart>& parts) {
  std::vector<store::RankFiles> files;
  for (const CheckpointPart& part : parts) files.push_back({part.rank, part.written.files});
  return files;
}

}  // namespace

bool asks_for_check(const Commit& commit) {
  return std::ranges::any_of(commit.parts, [](const CheckpointPart& part) {
    return std::ranges::find(part.written.files, kValidationName, &FileEntry::name) != part.written.files.end();
  });
}

CheckpointKeeper::CheckpointKeeper(store::RunDirectory& directory, CheckpointConfig config,
                                   std::function<void(const std::string&)> warn)
    : directory_(directory), config_(std::move(config)), warn_(std::move(warn)) {}

void CheckpointKeeper::load() {
  const auto listed = store::list_checkpoints(directory_, config_.score_attribute);
  if (!listed.empty()) set_next_seq(listed.back().seq + 1);
  for (const auto& each : listed)
    if (!each.checkpoint && !each.unreadable) warn_(each.problem);
  kept_ = store::usable(listed);
  store::check_readable(listed);
  loaded_ = true;
}

std::optional<store::CommittedCheckpoint> CheckpointKeeper::latest_good(bool may_begin_anew) const {
  try {
    return directory_.latest_good(warn_);
  } catch (const store::NoUsableCheckpoint&) {
    if (!may_begin_anew) throw;
    return std::nullopt;
  }
}

void CheckpointKeeper::begin_attempt(int world_size, bool may_begin_anew) {
  directory_.remove_partials();
  handed_out_.clear();
  due_.clear();
  opening_.clear();
  last_given_ = -1;
  if (!loaded_) load();
  if (in_memory()) return;
  // What was hashed in this run need not be read again.
  if (kept_.empty() || !(in_memory_.contains(kept_.back().seq) || is_unchanged(kept_.back().seq))) {
    const auto good = latest_good(may_begin_anew);
    // Newer checkpoints are damaged and no longer count. Their files stay, for inspection.
    std::erase_if(kept_, [&](const store::KeptCheckpoint& kept) { return !good || kept.seq > good->seq; });
  }
  for (int rank = 0; !kept_.empty() && rank < world_size; ++rank) handed_out_[rank] = opening_[rank] = kept_.back().seq;
}

/// Whether the files of a checkpoint that was committed here are as they were, by their sizes and times.
bool CheckpointKeeper::is_unchanged(int seq) const {
  const auto found = written_here_.find(seq);
  const auto kept = std::ranges::find(kept_, seq, &store::KeptCheckpoint::seq);
  if (found == written_here_.end() || kept == kept_.end() || !kept->checkpoint.path()) return false;
  try {
    const auto manifest = directory_.checkpoint(seq).manifest;
    for (const FileEntry& file : manifest.files) {
      const auto path = *kept->checkpoint.path() / file.name;
      if (static_cast<std::int64_t>(std::filesystem::file_size(path)) != file.size ||
          std::filesystem::last_write_time(path) != found->second.at(file.name))
        return false;
    }
    return kept->checkpoint.files().size() == manifest.files.size();
  } catch (const std::exception&) {
    return false;  // latest_good() says what is wrong
  }
}

std::optional<Checkpoint> CheckpointKeeper::begin_rank(int rank) {
  if (rank == 0 && !in_memory()) directory_.remove_partials();  // nobody else writes
  return hand_out(rank);
}

std::optional<Checkpoint> CheckpointKeeper::hand_out(int rank) {
  if (kept_.empty()) return std::nullopt;
  handed_out_[rank] = last_given_ = kept_.back().seq;
  return kept_.back().checkpoint;
}

std::optional<double> CheckpointKeeper::score_of(const Value& metrics, const std::vector<CheckpointPart>& parts) const {
  if (config_.score_attribute.empty()) return std::nullopt;
  for (const CheckpointPart& part : parts)
    if (part.written.score) return part.written.score;
  return number_at(metrics, config_.score_attribute);
}

int CheckpointKeeper::commit(Commit commit, int attempt, int world_size) {
  const int seq = next_seq_;
  Value metrics = std::move(commit.metrics);
  const auto score = score_of(metrics, commit.parts);
  metrics.erase("config");
  store::Manifest manifest;
  manifest.seq = seq;
  manifest.attempt = attempt;
  manifest.world_size = world_size;
  for (const CheckpointPart& part : commit.parts) manifest.ranks.push_back(part.rank);
  manifest.created = unix_seconds(wall_now());
  manifest.metrics = metrics;
  const bool shared = !commit.parts.front().written.memory.empty();
  Checkpoint checkpoint = in_memory() ? memory_checkpoint(commit, std::move(manifest))
                          : shared    ? shared_checkpoint(commit, std::move(manifest), attempt)
                                      : disk_checkpoint(commit, std::move(manifest));
  next_seq_ = seq + 1;
  if (in_memory()) kept_.clear();
  // Only the newest checkpoint keeps its arrays, for callbacks; those of all would fill the memory.
  if (!kept_.empty()) kept_.back().metrics = with_summaries(std::move(kept_.back().metrics));
  if (shared && (seq + 1) % config_.persist_every == 0)
    due_[seq] = {attempt, commit.report, in_memory_.at(seq).manifest, score, metrics};
  kept_.push_back({seq, score, std::move(metrics), std::move(checkpoint)});
  if (!asks_for_check(commit)) miss_score(kept_.back());
  drop_old_memory();
  return seq;
}

std::pair<Checkpoint, Value> CheckpointKeeper::at(int seq) const {
  const auto found = std::ranges::find(kept_, seq, &store::KeptCheckpoint::seq);
  if (found == kept_.end()) throw InternalError("[driver] checkpoint " + std::to_string(seq) + " is not kept");
  return {found->checkpoint, found->metrics};
}

void CheckpointKeeper::miss_score(const store::KeptCheckpoint& kept) {
  if (config_.score_attribute.empty() || in_memory() || warned_of_score_) return;
  if (std::ranges::any_of(kept_, [](const store::KeptCheckpoint& each) { return each.score.has_value(); })) return;
  warned_of_score_ = true;
  const auto names = closest_first(score_names(kept.metrics, kept.checkpoint), config_.score_attribute);
  warn_("checkpoint_score_attribute is " + in_quotes(config_.score_attribute) + ", but " +
        store::RunDirectory::checkpoint_name(kept.seq) +
        " has no number of that name in its dict or its metrics; until one has, the latest counts as the "
        "best. There are: " +
        (names.empty() ? "none" : joined(names, ", ")));
}

Checkpoint CheckpointKeeper::memory_checkpoint(const Commit& commit, store::Manifest manifest) const {
  std::vector<std::pair<std::string, Bytes>> files;
  std::vector<store::RankFiles> parts;
  for (const CheckpointPart& part : commit.parts) {
    files.insert(files.end(), part.written.contents.begin(), part.written.contents.end());
    store::RankFiles& entries = parts.emplace_back(store::RankFiles{part.rank, {}});
    for (const auto& [name, bytes] : part.written.contents)
      entries.files.push_back(
          {name, static_cast<std::int64_t>(bytes.size()), store::hash_of(std::as_bytes(std::span(bytes)))});
  }
  manifest.files = store::merge_parts(parts);
  const std::string text = store::to_text(manifest);
  files.emplace_back("manifest.json", Bytes(text.begin(), text.end()));
  return Checkpoint::from_files(std::move(files));
}

Checkpoint CheckpointKeeper::disk_checkpoint(const Commit& commit, store::Manifest manifest) {
  manifest.files = store::merge_parts(files_by_rank(commit.parts));
  return commit_to_disk(commit.parts.front().written.partial, manifest);
}

Checkpoint CheckpointKeeper::commit_to_disk(const std::string& partial, const store::Manifest& manifest) {
  const auto path = directory_.commit(partial, manifest);
  Times& times = written_here_[manifest.seq];
  std::error_code ignored;
  for (const FileEntry& file : manifest.files)
    times[file.name] = std::filesystem::last_write_time(path / file.name, ignored);
  return Checkpoint::from_directory(path);
}

// ---------------------------------------------------------------- in shared memory

Checkpoint CheckpointKeeper::shared_checkpoint(const Commit& commit, store::Manifest manifest, int attempt) {
  const wire::CheckpointWritten& written = commit.parts.front().written;
  if (commit.parts.size() > 1 || written.offsets.size() != written.files.size())
    throw StorageError("[checkpoint] a checkpoint in memory must be one rank's");
  manifest.files = store::merge_parts(files_by_rank(commit.parts));
  InMemory held;
  held.attempt = attempt;
  held.report = commit.report;
  // From now on the memory lives as long as this descriptor, whatever happens to the worker and its agent.
  held.memory = sys::files().open(written.memory, sys::OpenMode::read).fd;
  std::vector<detail::SharedFile> files;
  for (std::size_t i = 0; i < written.files.size(); ++i) {
    held.files.push_back({written.files[i].name, written.offsets[i], written.files[i].size});
    files.push_back({written.files[i].name, written.offsets[i], written.files[i].size});
  }
  held.manifest = std::move(manifest);
  const int seq = held.manifest.seq;
  InMemory& kept = in_memory_[seq] = std::move(held);
  return detail::checkpoint_in(path_of(kept.memory), files, store::to_text(kept.manifest), false);
}

/// By which other processes of this machine open it.
std::string CheckpointKeeper::path_of(const sys::Descriptor& memory) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.get());
}

std::optional<wire::MemoryFiles> CheckpointKeeper::latest_memory() const {
  const auto found = kept_.empty() ? in_memory_.end() : in_memory_.find(kept_.back().seq);
  if (found == in_memory_.end()) return std::nullopt;
  const InMemory& held = found->second;
  return wire::MemoryFiles{path_of(held.memory), held.files, store::to_text(held.manifest)};
}

/// Keeps the newest two, and those that a rank may still be opening.
void CheckpointKeeper::drop_old_memory() {
  const auto is_opened_now = [&](int seq) {
    return seq == last_given_ || std::ranges::any_of(opening_, [&](const auto& each) { return each.second == seq; });
  };
  const auto newest = in_memory_.size() < 2 ? in_memory_.begin() : std::prev(in_memory_.end(), 2);
  for (auto each = in_memory_.begin(); each != newest;) {
    const int seq = each->first;
    if (is_opened_now(seq)) {
      ++each;
      continue;
    }
    released_.emplace_back(each->second.attempt, each->second.report);
    if (!each->second.is_on_disk)
      std::erase_if(kept_, [&](const store::KeptCheckpoint& kept) { return kept.seq == seq; });
    each = in_memory_.erase(each);
  }
}

std::vector<int> CheckpointKeeper::take_released(int attempt) {
  std::vector<int> reports;
  for (const auto& [of, report] : std::exchange(released_, {}))
    if (of == attempt) reports.push_back(report);
  return reports;
}

void CheckpointKeeper::persist(const wire::CheckpointWritten& written, int attempt) {
  const auto due = std::ranges::find_if(
      due_, [&](const auto& each) { return each.second.attempt == attempt && each.second.report == written.report; });
  if (due == due_.end()) return;
  auto [seq, found] = std::move(*due);
  due_.erase(due);
  put_on_disk({seq, found.score, std::move(found.metrics), commit_to_disk(written.partial, found.manifest)});
}

void CheckpointKeeper::put_on_disk(store::KeptCheckpoint kept) {
  if (const auto held = in_memory_.find(kept.seq); held != in_memory_.end()) held->second.is_on_disk = true;
  const auto place = std::ranges::lower_bound(kept_, kept.seq, {}, &store::KeptCheckpoint::seq);
  if (place != kept_.end() && place->seq == kept.seq) {
    place->checkpoint = std::move(kept.checkpoint);
    return;
  }
  kept.metrics = with_summaries(std::move(kept.metrics));
  kept_.insert(place, std::move(kept));
}

void CheckpointKeeper::persist_latest() {
  const auto held = kept_.empty() ? in_memory_.end() : in_memory_.find(kept_.back().seq);
  if (held == in_memory_.end() || held->second.is_on_disk) return;
  const InMemory& memory = held->second;
  std::int64_t end = 0;
  for (const wire::HeldFile& file : memory.files) end = std::max(end, file.offset + file.size);
  const auto mapped = sys::map_shared(memory.memory.get(), static_cast<std::uint64_t>(end));
  std::vector<store::MemoryFile> files;
  for (const wire::HeldFile& file : memory.files)
    files.push_back({file.name, mapped.bytes().subspan(static_cast<std::size_t>(file.offset),
                                                       static_cast<std::size_t>(file.size))});
  const std::string partial = store::RunDirectory::partial_name(held->first);
  sys::PrivateFiles storage;
  storage.enter(directory_.path());
  store::PartWriter(storage, directory_.path() / partial).write_files(files);
  store::KeptCheckpoint kept = kept_.back();
  kept.checkpoint = commit_to_disk(partial, memory.manifest);
  put_on_disk(std::move(kept));
}

/// Those that retention is about.
std::vector<store::KeptCheckpoint> CheckpointKeeper::on_disk() const {
  std::vector<store::KeptCheckpoint> kept;
  for (const store::KeptCheckpoint& each : kept_) {
    const auto held = in_memory_.find(each.seq);
    if (held == in_memory_.end() || held->second.is_on_disk) kept.push_back(each);
  }
  return kept;
}

// ---------------------------------------------------------------- which are kept

void CheckpointKeeper::retain(const std::set<int>& waiting) {
  if (in_memory() || !loaded_) return;
  std::set<int> protect = waiting;
  for (const auto& [rank, seq] : handed_out_) protect.insert(seq);
  for (const int seq : store::decide_retention(on_disk(), config_, protect).remove) {
    directory_.remove_checkpoint(seq);
    written_here_.erase(seq);
    std::erase_if(kept_, [&](const store::KeptCheckpoint& kept) { return kept.seq == seq; });
  }
}

std::optional<std::pair<Checkpoint, Value>> CheckpointKeeper::add_metrics(int seq, const Value& metrics) {
  const auto add_to = [&](store::Manifest& manifest) {
    manifest.metrics.update(metrics);
    manifest.validated = true;
  };
  if (const auto held = in_memory_.find(seq); held != in_memory_.end()) add_to(held->second.manifest);
  if (const auto due = due_.find(seq); due != due_.end()) {
    due->second.metrics.update(metrics);
    add_to(due->second.manifest);
    if (const auto score = number_at(metrics, config_.score_attribute); score && !due->second.score)
      due->second.score = score;
  }
  const auto found = std::ranges::find(kept_, seq, &store::KeptCheckpoint::seq);
  if (found == kept_.end()) return std::nullopt;
  found->metrics.update(metrics);
  if (!config_.score_attribute.empty())
    found->score = store::score_of(found->checkpoint, found->metrics, config_.score_attribute);
  const auto held = in_memory_.find(seq);
  const bool is_on_disk = !in_memory() && (held == in_memory_.end() || held->second.is_on_disk);
  if (is_on_disk) directory_.add_metrics(seq, metrics);
  miss_score(*found);
  return std::pair(found->checkpoint, found->metrics);
}

std::optional<Checkpoint> CheckpointKeeper::latest() const {
  if (kept_.empty()) return std::nullopt;
  return kept_.back().checkpoint;
}

Value CheckpointKeeper::latest_metrics() const { return kept_.empty() ? Value::object() : kept_.back().metrics; }

std::vector<std::pair<Checkpoint, Value>> CheckpointKeeper::best() const {
  return store::best_checkpoints(on_disk(), config_);
}

}  // namespace lockstep::driver
