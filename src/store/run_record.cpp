#include "store/run_record.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "base/failure.h"
#include "base/json.h"
#include "base/version.h"
#include "store/run_directory.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::store {
namespace {

constexpr const char* kNotOurs = "[run_directory] run.json is not what Lockstep writes: ";

/// Reads the fields of an object. A field that is missing, null or of another type keeps its default. The first one of
/// another type is described in `problem`.
class FieldReader {
 public:
  FieldReader(const Value& object, std::string& problem) : object_(object), problem_(problem) {}

  void take(const char* key, std::string& to) const {
    if (const Value* found = find(key, &Value::is_string, "a string")) to = found->get<std::string>();
  }
  void take(const char* key, bool& to) const {
    if (const Value* found = find(key, &Value::is_boolean, "true or false")) to = found->get<bool>();
  }
  void take(const char* key, Value& to) const {
    if (const Value* found = find(key, &Value::is_object, "an object")) to = *found;
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void take(const char* key, T& to) const {
    const Value* found = find(key, &Value::is_number, "a number");
    if (found == nullptr) return;
    if (!fits<T>(found->get<double>())) return complain(std::string(key) + " is out of range");
    to = found->get<T>();
  }
  void take(const char* key, std::vector<std::string>& to) const {
    each(key, [&](const Value& item) { to.push_back(item.get<std::string>()); });
  }
  /// Calls `read` for every item of a list; an item of another type makes it throw Value::exception.
  template <class Read>
  void each(const char* key, Read&& read) const {
    const Value* found = find(key, &Value::is_array, "a list");
    if (found == nullptr) return;
    try {
      for (const Value& item : *found) read(item);
    } catch (const Value::exception& error) {
      complain("an entry of " + std::string(key) + " is of another type: " + error.what());
    }
  }
  /// The fields of the object at `key`.
  FieldReader inside(const char* key) const {
    static const Value kNothing = Value::object();
    const Value* found = find(key, &Value::is_object, "an object");
    return {found != nullptr ? *found : kNothing, problem_};
  }

 private:
  template <class T>
  static bool fits(double number) {
    if constexpr (std::is_floating_point_v<T>) return std::isfinite(number);
    constexpr double kExact = 1e15;  // every whole number below it is a double
    constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
    return std::abs(number) < std::min(kExact, kMost) && (std::is_signed_v<T> || number >= 0);
  }
  const Value* find(const char* key, bool (Value::*is_right)() const noexcept, const char* expected) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return nullptr;
    if (((*found).*is_right)()) return &*found;
    complain(std::string(key) + " is not " + expected);
    return nullptr;
  }
  void complain(const std::string& what) const {
    if (problem_.empty()) problem_ = what;
  }

  const Value& object_;
  std::string& problem_;
};

AttemptRecord attempt_from_value(const Value& value, std::string& problem) {
  AttemptRecord attempt;
  (void)value.get_ref<const Value::object_t&>();  // throws unless it is an object
  const FieldReader fields(value, problem);
  fields.take("number", attempt.number);
  fields.take("started", attempt.started);
  fields.take("ended", attempt.ended);
  fields.take("world_size", attempt.world_size);
  fields.take("nodes", attempt.nodes);
  fields.take("outcome", attempt.outcome);
  return attempt;
}

/// The record has one list of failures; an attempt stores their indices in it.
Value attempt_to_value(const AttemptRecord& attempt, const std::map<int, Value>& failures) {
  const auto own = failures.find(attempt.number);
  return {{"number", attempt.number},
          {"started", attempt.started},
          {"ended", or_null(attempt.ended)},
          {"world_size", attempt.world_size},
          {"nodes", attempt.nodes},
          {"outcome", attempt.outcome},
          {"failures", own != failures.end() ? own->second : Value::array()}};
}

/// By attempt: the indices of its failures.
std::map<int, Value> by_attempt(const std::vector<Failure>& failures) {
  std::map<int, Value> places;
  for (std::size_t i = 0; i < failures.size(); ++i)
    places.try_emplace(failures[i].attempt, Value::array()).first->second.push_back(i);
  return places;
}

RunRecord read_record(const Value& value, std::string& problem) {
  RunRecord record;
  const FieldReader fields(value, problem);
  fields.take("state", record.state);
  if (!problem.empty()) record.state.clear();  // unknown
  fields.take("name", record.name);
  fields.take("trainer", record.trainer);
  fields.take("num_workers", record.num_workers);
  fields.take("attempt", record.attempt);
  fields.take("created", record.created);
  fields.take("updated", record.updated);
  fields.take("finished", record.finished);
  fields.take("training_iteration", record.training_iteration);
  fields.take("time_total_s", record.time_total_s);
  fields.take("next_seq", record.next_seq);
  fields.take("checkpoints_skipped", record.checkpoints_skipped);
  fields.take("validates", record.validates);
  fields.take("trial_id", record.trial_id);
  fields.take("experiment_id", record.experiment_id);
  fields.take("function_sha256", record.function_sha256);
  fields.take("function_sha256_next", record.function_sha256_next);
  fields.take("metrics", record.metrics);
  fields.take("config_run", record.config_run);
  fields.take("metadata", record.metadata);
  fields.take("error", record.error);
  fields.take("warnings", record.warnings);
  const FieldReader driver = fields.inside("driver");
  driver.take("pid", record.driver.pid);
  driver.take("start_ticks", record.driver.start_ticks);
  driver.take("hostname", record.driver.hostname);
  fields.each("attempts", [&](const Value& each) { record.attempts.push_back(attempt_from_value(each, problem)); });
  fields.each("failures", [&](const Value& each) { record.failures.push_back(failure_from_value(each)); });
  return record;
}

}  // namespace

DriverProcess DriverProcess::current() {
  const auto read = [](int pid) {
    return DriverProcess{pid, sys::process_status(pid).value_or(sys::ProcessStatus{}).start_ticks, sys::host_name()};
  };
  const int pid = ::getpid();
  static const DriverProcess first = read(pid);
  return first.pid == pid ? first : read(pid);  // in a forked child
}

void RunRecord::begin_attempt(int number, int world_size, std::vector<std::string> nodes, double time) {
  end_attempt("failed", time);
  attempts.push_back({number, time, 0, world_size, std::move(nodes)});
}

void RunRecord::end_attempt(const std::string& outcome, double time) {
  if (attempts.empty() || attempts.back().outcome != "running") return;
  attempts.back().outcome = outcome;
  attempts.back().ended = time;
}

std::vector<int> RunRecord::world_sizes() const {
  std::vector<int> sizes;
  for (const AttemptRecord& each : attempts) sizes.push_back(each.world_size);
  return sizes;
}

void RunRecord::sign(double time) {
  driver = DriverProcess::current();
  updated = time;
}

Value RunRecord::to_value() const {
  Value list = Value::array(), history = Value::array();
  for (const Failure& failure : failures) list.push_back(lockstep::to_value(failure));
  const auto places = by_attempt(failures);
  for (const AttemptRecord& each : attempts) history.push_back(attempt_to_value(each, places));
  Value value{{"version", 1},
              {"name", name},
              {"state", state},
              {"trainer", trainer},
              {"num_workers", num_workers},
              {"attempt", attempt},
              {"created", created},
              {"updated", updated},
              {"finished", or_null(finished)},
              {"training_iteration", training_iteration},
              {"time_total_s", time_total_s},
              {"next_seq", next_seq},
              {"checkpoints_skipped", checkpoints_skipped},
              {"trial_id", trial_id},
              {"experiment_id", experiment_id},
              {"function_sha256", function_sha256},
              {"driver", {{"pid", driver.pid}, {"start_ticks", driver.start_ticks}, {"hostname", driver.hostname}}},
              {"versions", {{"lockstep", kVersion}}},
              {"config_run", config_run},
              {"metadata", metadata},
              {"metrics", metrics},
              {"attempts", std::move(history)},
              {"failures", std::move(list)},
              {"error", error},
              {"warnings", warnings}};
  if (validates) value["validates"] = true;
  if (!function_sha256_next.empty()) value["function_sha256_next"] = function_sha256_next;
  return value;
}

RunRecord RunRecord::from_value(const Value& value, std::string* problem) {
  if (!value.is_object()) throw StorageError(std::string(kNotOurs) + "it is not an object");
  std::string first;
  RunRecord record = read_record(value, first);
  if (problem == nullptr && !first.empty()) throw StorageError(kNotOurs + first);
  if (problem != nullptr) *problem = std::move(first);
  return record;
}

void finish_record(const std::filesystem::path& run, const Value& metrics, double time) {
  RunDirectory directory(run);
  if (!directory.exists()) return;
  RunRecord record = RunRecord::from_value(directory.read_run_json());
  const bool goes_on =
      number_in<double>(metrics, "training_iteration") > static_cast<double>(record.training_iteration);
  if (record.state != "running" && !goes_on) return;
  record.state = "finished";
  record.error.clear();
  record.finished = time;
  record.end_attempt("finished", time);
  if (metrics.is_object())
    for (const auto& [key, value] : metrics.items()) record.metrics[key] = value;
  if (const auto iteration = record.metrics.find("training_iteration"); iteration != record.metrics.end())
    record.training_iteration = static_cast<std::int64_t>(number_of(*iteration).value_or(0));
  directory.write_run_json(record.to_value());
}

}  // namespace lockstep::store
