#include "driver/checkpoint_keeper.h"

#include <lockstep/array.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "metrics/autofill.h"
#include "metrics/flatten.h"
#include "store/hash.h"
#include "store/retention.h"
#include "store/score.h"

namespace lockstep::driver {
namespace {

/// The numbers that a checkpoint could be chosen by, as checkpoint_score_attribute would name them.
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

std::vector<store::Part> to_store(const std::vector<Part>& parts) {
  std::vector<store::Part> out;
  for (const Part& part : parts) {
    store::Part each{part.rank, {}};
    for (const auto& file : part.written.files) each.files.push_back({file.name, file.size, file.xxh3_128});
    out.push_back(std::move(each));
  }
  return out;
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(store::RunDirectory& directory, CheckpointConfig config,
                                   std::function<void(const std::string&)> warn)
    : directory_(directory), config_(std::move(config)), warn_(std::move(warn)) {}

void CheckpointKeeper::load() {
  kept_.clear();
  std::optional<sys::FileError> unreadable;
  for (const int seq : directory_.checkpoints()) {
    set_next_seq(seq + 1);
    try {
      const auto committed = directory_.checkpoint(seq);
      Checkpoint checkpoint = Checkpoint::from_directory(committed.path);
      std::optional<double> score;
      if (!config_.score_attribute.empty()) {
        score = store::score_of(checkpoint, config_.score_attribute);
        if (!score) score = number_at(committed.manifest.metrics, config_.score_attribute);
      }
      kept_.push_back({seq, score, committed.manifest.metrics, std::move(checkpoint)});
    } catch (const sys::FileError& error) {
      if (!error.is_missing())
        unreadable = error;
      else
        warn_(error.what());
    } catch (const StorageError& error) {
      warn_(error.what());
    }
  }
  if (unreadable) throw sys::FileError(*unreadable);
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
  // What is newer and broken is no checkpoint any more; its files stay for whoever wants to look.
  std::erase_if(kept_, [&](const Kept& kept) { return !good || kept.seq > good->seq; });
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

std::optional<double> CheckpointKeeper::score_of(const Value& metrics, const std::vector<Part>& parts) const {
  if (config_.score_attribute.empty()) return std::nullopt;
  for (const Part& part : parts)
    if (part.written.score) return part.written.score;
  return number_at(metrics, config_.score_attribute);
}

Checkpoint CheckpointKeeper::commit(const Commit& commit, int attempt, int world_size, Value metrics) {
  const int seq = next_seq_;
  const auto score = score_of(metrics, commit.parts);
  metrics.erase("config");
  store::Manifest manifest;
  manifest.seq = seq;
  manifest.attempt = attempt;
  manifest.world_size = world_size;
  for (const Part& part : commit.parts) manifest.ranks.push_back(part.rank);
  manifest.created = unix_seconds(wall_now());
  manifest.metrics = metrics;
  Checkpoint checkpoint =
      in_memory() ? memory_checkpoint(commit, std::move(manifest)) : disk_checkpoint(commit, std::move(manifest));
  next_seq_ = seq + 1;
  if (in_memory()) kept_.clear();
  // One checkpoint's arrays are at hand, for the callbacks; those of all would fill the memory.
  if (!kept_.empty()) kept_.back().metrics = with_summaries(std::move(kept_.back().metrics));
  kept_.push_back({seq, score, std::move(metrics), checkpoint});
  miss_score(kept_.back());
  return checkpoint;
}

void CheckpointKeeper::miss_score(const Kept& kept) {
  if (config_.score_attribute.empty() || in_memory() || warned_of_score_) return;
  if (std::ranges::any_of(kept_, [](const Kept& each) { return each.score.has_value(); })) return;
  warned_of_score_ = true;
  const auto names = closest_first(score_names(kept.metrics, kept.checkpoint), config_.score_attribute);
  warn_("checkpoint_score_attribute is " + in_quotes(config_.score_attribute) + ", and " +
        store::RunDirectory::checkpoint_name(kept.seq) +
        " has no number of that name, neither in its dict nor in its metrics; until one has, the latest counts as the "
        "best. There are: " +
        (names.empty() ? "none" : joined(names, ", ")));
}

Checkpoint CheckpointKeeper::memory_checkpoint(const Commit& commit, store::Manifest manifest) const {
  std::vector<std::pair<std::string, Bytes>> files;
  for (const Part& part : commit.parts)
    files.insert(files.end(), part.written.contents.begin(), part.written.contents.end());
  for (const auto& [name, bytes] : files)
    manifest.files.push_back(
        {name, static_cast<std::int64_t>(bytes.size()), store::hash_of(std::as_bytes(std::span(bytes)))});
  const std::string text = store::to_text(manifest);
  files.emplace_back("manifest.json", Bytes(text.begin(), text.end()));
  return Checkpoint::from_files(std::move(files));
}

Checkpoint CheckpointKeeper::disk_checkpoint(const Commit& commit, store::Manifest manifest) const {
  manifest.files = store::merge_parts(to_store(commit.parts));
  return Checkpoint::from_directory(directory_.commit(commit.parts.front().written.partial, manifest));
}

void CheckpointKeeper::retain() {
  if (in_memory() || !loaded_) return;
  std::vector<store::ScoredCheckpoint> scored;
  for (const Kept& kept : kept_) scored.push_back({kept.seq, kept.score});
  std::set<int> protect;
  for (const auto& [rank, seq] : handed_out_) protect.insert(seq);
  const auto order = config_.score_order == "min" ? store::ScoreOrder::min : store::ScoreOrder::max;
  for (const int seq : store::decide_retention(std::move(scored), config_.num_to_keep, order, protect).remove) {
    directory_.remove_checkpoint(seq);
    std::erase_if(kept_, [&](const Kept& kept) { return kept.seq == seq; });
  }
}

std::optional<Checkpoint> CheckpointKeeper::latest() const {
  if (kept_.empty()) return std::nullopt;
  return kept_.back().checkpoint;
}

Value CheckpointKeeper::latest_metrics() const { return kept_.empty() ? Value::object() : kept_.back().metrics; }

std::vector<std::pair<Checkpoint, Value>> CheckpointKeeper::best() const {
  std::vector<std::pair<Checkpoint, Value>> best;
  if (in_memory()) return best;
  std::vector<store::ScoredCheckpoint> scored;
  for (const Kept& kept : kept_) scored.push_back({kept.seq, kept.score});
  const auto order = config_.score_order == "min" ? store::ScoreOrder::min : store::ScoreOrder::max;
  for (const int seq : store::decide_retention(std::move(scored), config_.num_to_keep, order).best) {
    const auto found = std::ranges::find(kept_, seq, &Kept::seq);
    best.emplace_back(found->checkpoint, with_summaries(found->metrics));
  }
  return best;
}

}  // namespace lockstep::driver
