#include <lockstep/result.h>

#include "base/json.h"
#include "driver/checkpoint_keeper.h"
#include "driver/run_record.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep {
namespace {

/// A run that says it runs, but whose driver is gone from this machine.
bool driver_is_dead(const Value& run) {
  const Value driver = run.value("driver", Value::object());
  if (driver.value("hostname", std::string()) != sys::host_name()) return false;
  const auto status = sys::process_status(driver.value("pid", 0));
  return !status || status->start_ticks != driver.value("start_ticks", std::uint64_t{0});
}

CheckpointConfig checkpoint_config(const Value& settings) {
  CheckpointConfig config;
  if (const auto keep = settings.find("num_to_keep"); keep != settings.end() && keep->is_number())
    config.num_to_keep = keep->get<int>();
  config.score_attribute = settings.value("checkpoint_score_attribute", std::string());
  config.score_order = settings.value("checkpoint_score_order", std::string("max"));
  return config;
}

}  // namespace

const std::vector<Failure>& TrainingError::failures() const { return result_->failures; }

Result Result::from_path(const std::filesystem::path& run) {
  const auto found = store::find_run(run);
  if (!found) throw StorageError("[result] " + run.string() + " holds no run: it has no run.json");
  store::RunDirectory directory(*found);
  const Value json = directory.read_run_json();
  const auto record = driver::RunRecord::from_value(json);
  const auto config = read_as_written("run.json", [&] { return checkpoint_config(record.config_run); });
  driver::CheckpointKeeper keeper(directory, config, [](const std::string&) {});
  keeper.load();
  Result result;
  result.path = std::filesystem::absolute(*found);
  const auto is_dead = [&] { return driver_is_dead(json); };
  result.state = record.state == "running" && read_as_written("run.json", is_dead) ? "died" : record.state;
  result.metrics = record.metrics;
  if (directory.has_file("params.json")) result.config = directory.read_json("params.json");
  result.checkpoint = keeper.latest();
  result.best_checkpoints = keeper.best();
  result.failures = record.failures;
  result.error = record.error;
  result.trainer = record.trainer;
  return result;
}

}  // namespace lockstep
