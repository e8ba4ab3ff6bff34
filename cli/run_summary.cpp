#include "run_summary.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <cmath>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "metrics/metric_texts.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// A number that a person may have edited: anything else counts as 0.
double number_at(const Value& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return 0;
  const double number = found->get<double>();
  return std::isfinite(number) ? number : 0;
}

long whole_at(const Value& object, const char* key) {
  const double number = number_at(object, key);
  return std::abs(number) < 1e15 ? static_cast<long>(number) : 0;
}

std::string text_at(const Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Value object_at(const Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Value::object();
}

void fill_in(RunSummary& run, const Value& record) {
  run.state = text_at(record, "state");
  run.attempts = static_cast<int>(whole_at(record, "attempt")) + 1;
  const auto failures = record.find("failures");
  run.failures = failures != record.end() && failures->is_array() ? static_cast<int>(failures->size()) : 0;
  run.iterations = whole_at(record, "training_iteration");
  run.started = number_at(record, "created");
  run.updated = number_at(record, "updated");
  run.finished = number_at(record, "finished");
  run.trainer = text_at(record, "trainer");
  run.num_workers = static_cast<int>(whole_at(record, "num_workers"));
  run.error = text_at(record, "error");
  run.metrics = object_at(record, "metrics");

  const Value driver = object_at(record, "driver");
  run.driver_pid = static_cast<int>(whole_at(driver, "pid"));
  run.driver_start_ticks = number_at(driver, "start_ticks");
  run.driver_host = text_at(driver, "hostname");
  run.driver_is_here = run.driver_host.empty() || run.driver_host == sys::host_name();
  if (run.state == "running" && run.driver_is_here && !driver_is_alive(run)) run.state = "died";

  double end = run.finished;
  if (run.state == "running") end = unix_seconds(wall_now());
  if (end == 0) end = run.updated;
  // After the clock went back only the driver's own measure is left.
  const double total = number_at(record, "time_total_s");
  if (run.started > 0 && end > run.started)
    run.duration = end - run.started;
  else if (total > 0)
    run.duration = total;
}

}  // namespace

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "run.json", ignored);
}

fs::path storage_of(const std::string& path) { return path.empty() ? store::default_storage_path() : fs::path(path); }

std::vector<fs::path> runs_in(const std::string& path) {
  const fs::path place = storage_of(path);
  std::vector<fs::path> found;
  std::error_code error;
  if (path.empty() && !fs::exists(place, error)) return found;
  for (fs::directory_iterator entries(place, error), end; !error && entries != end; entries.increment(error))
    if (is_run(entries->path())) found.push_back(entries->path());
  if (error)
    throw ConfigError("[runs] there is no run " + in_quotes(path) + ", and no directory of runs can be listed there: " +
                      error.message() + "; `lockstep runs` lists the runs");
  return found;
}

RunSummary read_run(const fs::path& path) {
  RunSummary run;
  run.path = path;
  try {
    const Value record = store::RunDirectory(path).read_run_json();
    if (!record.is_object()) throw StorageError("[run] run.json holds no object");
    fill_in(run, record);
  } catch (const StorageError& error) {
    run = RunSummary{};
    run.path = path;
    run.state = "unreadable";
    run.error = error.what();
  }
  return run;
}

bool driver_is_alive(const RunSummary& run) {
  const auto status = run.driver_pid > 0 ? sys::process_status(run.driver_pid) : std::nullopt;
  if (!status || status->state == 'Z' || status->state == 'X') return false;
  return run.driver_start_ticks == 0 || static_cast<double>(status->start_ticks) == run.driver_start_ticks;
}

fs::path find_run(const std::string& name) {
  if (name.empty()) throw ConfigError("[runs] the run's name is empty; `lockstep runs` lists the runs");
  if (auto found = store::find_run(name)) return *found;
  std::vector<std::string> places;
  for (const fs::path& place : store::places_of_run(name)) places.push_back(in_quotes(place.native()));
  throw ConfigError("[runs] there is no run " + in_quotes(name) + ": no run.json in " + joined(places, " or ") +
                    "; `lockstep runs` lists the runs");
}

std::string name_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  return whole.filename().string();
}

std::string metrics_text(const Value& metrics) {
  return joined(metrics::metric_texts(metrics, metrics::Keys::reported, std::string::npos), " ");
}

std::string time_text(double unix_seconds) {
  if (unix_seconds <= 0 || unix_seconds > 1e11) return "-";
  return time_string(WallTime(std::chrono::seconds(static_cast<std::int64_t>(unix_seconds))));
}

}  // namespace lockstep::cli
