#include <lockstep/result.h>

#include "store/find_run.h"
#include "store/run_directory.h"
#include "store/run_view.h"

namespace lockstep {

const std::vector<Failure>& TrainingError::failures() const { return result_->failures; }

Result Result::from_path(const std::filesystem::path& run) {
  const auto found = store::find_run(run);
  if (!found) throw StorageError("[result] " + run.string() + " holds no run: it has no run.json");
  const auto view = store::RunView::read(*found);
  const auto checkpoints = view.usable_checkpoints();
  const store::RunDirectory directory(*found);
  Result result;
  result.path = std::filesystem::absolute(*found);
  result.state = view.state();
  result.metrics = view.record.metrics;
  if (directory.has_file("params.json")) result.config = directory.read_json("params.json");
  if (!checkpoints.empty()) result.checkpoint = checkpoints.back().checkpoint;
  result.best_checkpoints = store::best_checkpoints(checkpoints, view.checkpoint_config);
  result.failures = view.record.failures;
  result.world_sizes = view.record.world_sizes();
  result.error = view.record.error;
  result.trainer = view.record.trainer;
  return result;
}

}  // namespace lockstep
