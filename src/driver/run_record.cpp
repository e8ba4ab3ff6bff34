#include "driver/run_record.h"

#include <unistd.h>

#include "base/failure.h"
#include "base/json.h"
#include "base/version.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::driver {
namespace {

Value or_null(double seconds) { return seconds > 0 ? Value(seconds) : Value(nullptr); }

Value object_in(const Value& value, const char* key) {
  Value found = value.value(key, Value::object());
  if (!found.is_object())
    throw StorageError("[run] run.json is not what Lockstep writes: " + std::string(key) + " is no object");
  return found;
}

RunRecord read(const Value& value) {
  RunRecord record;
  record.name = value.value("name", std::string());
  record.state = value.value("state", std::string("running"));
  record.trainer = value.value("trainer", std::string());
  record.num_workers = value.value("num_workers", 1);
  record.attempt = value.value("attempt", 0);
  record.created = number_in<double>(value, "created");
  record.finished = number_in<double>(value, "finished");
  record.training_iteration = value.value("training_iteration", 0L);
  record.time_total_s = number_in<double>(value, "time_total_s");
  record.next_seq = value.value("next_seq", 0);
  record.trial_id = value.value("trial_id", std::string());
  record.experiment_id = value.value("experiment_id", std::string());
  record.function_sha256 = value.value("function_sha256", std::string());
  record.function_sha256_next = value.value("function_sha256_next", std::string());
  record.metrics = object_in(value, "metrics");
  record.config_run = object_in(value, "config_run");
  record.metadata = object_in(value, "metadata");
  record.error = value.value("error", std::string());
  record.warnings = value.value("warnings", std::vector<std::string>());
  for (const Value& failure : value.value("failures", Value::array()))
    record.failures.push_back(failure_from_value(failure));
  return record;
}

}  // namespace

Value RunRecord::to_value() const {
  Value list = Value::array();
  for (const Failure& failure : failures) list.push_back(lockstep::to_value(failure, false));
  Value value{{"version", 1},
              {"name", name},
              {"state", state},
              {"trainer", trainer},
              {"num_workers", num_workers},
              {"attempt", attempt},
              {"created", created},
              {"updated", unix_seconds(wall_now())},
              {"finished", or_null(finished)},
              {"training_iteration", training_iteration},
              {"time_total_s", time_total_s},
              {"next_seq", next_seq},
              {"trial_id", trial_id},
              {"experiment_id", experiment_id},
              {"function_sha256", function_sha256},
              {"driver",
               {{"pid", getpid()},
                {"start_ticks", sys::process_status(getpid()).value_or(sys::ProcessStatus{}).start_ticks},
                {"hostname", sys::host_name()}}},
              {"versions", {{"lockstep", kVersion}}},
              {"config_run", config_run},
              {"metadata", metadata},
              {"metrics", metrics},
              {"failures", std::move(list)},
              {"error", error},
              {"warnings", warnings}};
  if (!function_sha256_next.empty()) value["function_sha256_next"] = function_sha256_next;
  return value;
}

RunRecord RunRecord::from_value(const Value& value) {
  return read_as_written("run.json", [&] { return read(value); });
}

}  // namespace lockstep::driver
