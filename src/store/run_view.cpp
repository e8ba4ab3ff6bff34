#include "store/run_view.h"

#include <lockstep/error.h>

#include "base/clock.h"
#include "base/json.h"
#include "store/run_directory.h"
#include "store/run_settings.h"
#include "sys/directory_lock.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

bool is_running(const DriverProcess& driver) {
  const auto status = driver.pid > 0 ? sys::process_status(driver.pid) : std::nullopt;
  const bool is_dead = !status || status->state == 'Z' || status->state == 'X';
  return !is_dead && driver.start_ticks != 0 && status->start_ticks == driver.start_ticks;
}

RunView read_once(const fs::path& path, OddFields odd, sys::Files& files) {
  RunView view;
  view.path = path;
  std::string ignored;
  view.record =
      RunRecord::from_value(RunDirectory(path, files).read_run_json(), odd == OddFields::ignore ? &ignored : nullptr);
  try {
    view.checkpoint_config = run_settings_from(view.record.config_run).run.checkpoint;
  } catch (const StorageError&) {
    if (odd == OddFields::refuse) throw;
  }
  view.driver = driver_state(path, view.record);
  return view;
}

}  // namespace

DriverState driver_state(const fs::path& run, const RunRecord& record) {
  if (record.state != "running") return DriverState::ended;
  const std::string& host = record.driver.hostname;
  if (!host.empty() && host != sys::host_name()) return DriverState::elsewhere;
  if (!is_running(record.driver)) return DriverState::gone;
  return sys::DirectoryLock::is_held(run) == false ? DriverState::left : DriverState::alive;
}

RunView RunView::read(const fs::path& path, OddFields odd, sys::Files& files) {
  RunView view = read_once(path, odd, files);
  // The run may have ended after we read its record. Its driver wrote that before it exited, so read again.
  return view.state() == "died" ? read_once(path, odd, files) : view;
}

std::string RunView::state() const {
  return driver == DriverState::gone || driver == DriverState::left ? "died" : record.state;
}

std::optional<double> RunView::duration() const {
  double end = record.finished;
  if (state() == "running") end = unix_seconds(wall_now());
  if (end == 0) end = record.updated;
  if (record.created > 0 && end > record.created) return end - record.created;
  // If the clock was set back, only the driver's own measurement is left.
  return record.time_total_s > 0 ? std::optional(record.time_total_s) : std::nullopt;
}

std::vector<ListedCheckpoint> RunView::checkpoints() const {
  return list_checkpoints(RunDirectory(path), checkpoint_config.score_attribute);
}

std::vector<KeptCheckpoint> RunView::usable_checkpoints() const {
  const auto listed = checkpoints();
  check_readable(listed);
  return usable(listed);
}

}  // namespace lockstep::store
