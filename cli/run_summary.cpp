#include "run_summary.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <cmath>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "metrics/metric_texts.h"
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

/// A pid alone may have gone to another process meanwhile.
bool is_alive(int pid, double start_ticks) {
  const auto status = pid > 0 ? sys::process_status(pid) : std::nullopt;
  if (!status || status->state == 'Z' || status->state == 'X') return false;
  return start_ticks == 0 || static_cast<double>(status->start_ticks) == start_ticks;
}

void fill_in(RunSummary& run, const Value& record) {
  run.state = text_at(record, "state");
  run.attempts = static_cast<int>(whole_at(record, "attempt")) + 1;
  const auto failures = record.find("failures");
  run.failures = failures != record.end() && failures->is_array() ? static_cast<int>(failures->size()) : 0;
  run.iterations = whole_at(record, "training_iteration");
  run.started = number_at(record, "created");
  run.metrics = object_at(record, "metrics");

  const Value driver = object_at(record, "driver");
  run.driver_pid = static_cast<int>(whole_at(driver, "pid"));
  run.driver_host = text_at(driver, "hostname");
  run.driver_is_here = run.driver_host.empty() || run.driver_host == sys::host_name();
  if (run.state == "running" && run.driver_is_here && !is_alive(run.driver_pid, number_at(driver, "start_ticks")))
    run.state = "died";

  double end = number_at(record, "finished");
  if (run.state == "running") end = unix_seconds(wall_now());
  if (end == 0) end = number_at(record, "updated");
  run.duration = run.started > 0 && end > run.started ? end - run.started : 0;
}

}  // namespace

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "run.json", ignored);
}

RunSummary read_run(const fs::path& path) {
  RunSummary run;
  run.path = path;
  try {
    const Value record = store::RunDirectory(path).read_run_json();
    if (!record.is_object()) throw StorageError("[run] run.json holds no object");
    fill_in(run, record);
  } catch (const StorageError&) {
    run = RunSummary{};
    run.path = path;
    run.state = "unreadable";
  }
  return run;
}

fs::path find_run(const std::string& name) {
  if (name.empty()) throw ConfigError("[runs] the run's name is empty; `lockstep runs` lists the runs");
  if (is_run(name)) return name;
  fs::path below = store::default_storage_path() / name;
  if (is_run(below)) return below;
  throw ConfigError("[runs] there is no run " + in_quotes(name) + ": neither " + in_quotes(name) + " nor " +
                    in_quotes(below.native()) + " has a run.json; `lockstep runs` lists the runs");
}

std::string metrics_text(const Value& metrics) {
  return joined(metrics::metric_texts(metrics, metrics::Keys::reported, std::string::npos), " ");
}

std::string time_text(double unix_seconds) {
  if (unix_seconds <= 0 || unix_seconds > 1e11) return "-";
  return time_string(WallTime(std::chrono::seconds(static_cast<std::int64_t>(unix_seconds))));
}

}  // namespace lockstep::cli
