#include "dashboard/checkpoints.h"

#include <algorithm>

#include "base/json.h"
#include "store/run_directory.h"
#include "store/score.h"

namespace lockstep::dashboard {
namespace {

constexpr std::uint64_t kLargestDict = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestManifest = std::uint64_t{64} << 20;

std::optional<double> score_in_dict(const store::CommittedCheckpoint& checkpoint, const std::string& attribute,
                                    sys::Files& files) {
  const auto listed = std::ranges::find(checkpoint.manifest.files, std::string("data.json"), &FileEntry::name);
  if (listed == checkpoint.manifest.files.end()) return std::nullopt;
  const auto path = checkpoint.path / "data.json";
  if (files.info(path).size > kLargestDict) return std::nullopt;
  return store::score_in(files.read_text(path), attribute, [] { return std::vector<Tensor>(); });
}

}  // namespace

std::vector<ShownCheckpoint> shown_checkpoints(const store::RunView& view, sys::Files& files) {
  const store::RunDirectory run(view.path, files);
  const std::string& attribute = view.checkpoint_config.score_attribute;
  std::vector<ShownCheckpoint> all;
  for (const int seq : run.checkpoints()) {
    ShownCheckpoint& shown = all.emplace_back();
    shown.seq = seq;
    try {
      if (files.info(run.checkpoint_path(seq) / "manifest.json").size > kLargestManifest)
        throw StorageError("its manifest.json is too large to read");
      const auto checkpoint = run.checkpoint(seq);
      shown.size = checkpoint.manifest.size();
      shown.files = checkpoint.manifest.files.size();
      shown.attempt = checkpoint.manifest.attempt;
      shown.world_size = checkpoint.manifest.world_size;
      shown.created = checkpoint.manifest.created;
      shown.metrics = checkpoint.manifest.metrics;
      if (attribute.empty()) continue;
      shown.score = score_in_dict(checkpoint, attribute, files);
      if (!shown.score) shown.score = number_at(checkpoint.manifest.metrics, attribute);
    } catch (const StorageError& error) {
      shown.problem = error.what();
    }
  }
  return all;
}

}  // namespace lockstep::dashboard
