#include "driver/checkpoint_keeper.h"

#include <lockstep/array.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "metrics/autofill.h"
#include "metrics/flatten.h"
#include "store/hash.h"

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
  if (!loaded_) load();
  if (in_memory()) return;
  const auto good = latest_good(may_begin_anew);
  // Newer checkpoints are damaged and no longer count. Their files stay, for inspection.
  std::erase_if(kept_, [&](const store::KeptCheckpoint& kept) { return !good || kept.seq > good->seq; });
  for (int rank = 0; good && rank < world_size; ++rank) handed_out_[rank] = good->seq;
}

std::optional<Checkpoint> CheckpointKeeper::begin_rank(int rank) {
  if (rank == 0 && !in_memory()) directory_.remove_partials();  // nobody else writes
  return hand_out(rank);
}

std::optional<Checkpoint> CheckpointKeeper::hand_out(int rank) {
  if (kept_.empty()) return std::nullopt;
  handed_out_[rank] = kept_.back().seq;
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
  Checkpoint checkpoint =
      in_memory() ? memory_checkpoint(commit, std::move(manifest)) : disk_checkpoint(commit, std::move(manifest));
  next_seq_ = seq + 1;
  if (in_memory()) kept_.clear();
  // Only the newest checkpoint keeps its arrays, for callbacks; those of all would fill the memory.
  if (!kept_.empty()) kept_.back().metrics = with_summaries(std::move(kept_.back().metrics));
  kept_.push_back({seq, score, std::move(metrics), std::move(checkpoint)});
  miss_score(kept_.back());
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

Checkpoint CheckpointKeeper::disk_checkpoint(const Commit& commit, store::Manifest manifest) const {
  manifest.files = store::merge_parts(files_by_rank(commit.parts));
  return Checkpoint::from_directory(directory_.commit(commit.parts.front().written.partial, manifest));
}

void CheckpointKeeper::retain() {
  if (in_memory() || !loaded_) return;
  std::set<int> protect;
  for (const auto& [rank, seq] : handed_out_) protect.insert(seq);
  for (const int seq : store::decide_retention(kept_, config_, protect).remove) {
    directory_.remove_checkpoint(seq);
    std::erase_if(kept_, [&](const store::KeptCheckpoint& kept) { return kept.seq == seq; });
  }
}

std::optional<Checkpoint> CheckpointKeeper::latest() const {
  if (kept_.empty()) return std::nullopt;
  return kept_.back().checkpoint;
}

Value CheckpointKeeper::latest_metrics() const { return kept_.empty() ? Value::object() : kept_.back().metrics; }

std::vector<std::pair<Checkpoint, Value>> CheckpointKeeper::best() const {
  return store::best_checkpoints(kept_, config_);
}

}  // namespace lockstep::driver
