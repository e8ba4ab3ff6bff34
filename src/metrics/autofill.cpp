#include "metrics/autofill.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/ids.h"

namespace lockstep::metrics {
namespace {

/// In the order of the result.
enum Key : std::size_t {
  worker_timestamp,
  worker_time_this_iter,
  worker_training_iteration,
  worker_date,
  worker_time_total,
  worker_pid,
  worker_hostname,
  worker_node_ip,
  time_this_iter,
  done,
  timesteps_total,
  episodes_total,
  training_iteration,
  trial_id,
  experiment_id,
  date,
  timestamp,
  time_total,
  pid,
  hostname,
  node_ip,
  config,
  time_since_restore,
  timesteps_since_restore,
  iterations_since_restore,
  warmup_time,
  experiment_tag,
  key_count
};

constexpr std::array<std::string_view, key_count> kNames{"_timestamp",
                                                         "_time_this_iter_s",
                                                         "_training_iteration",
                                                         "_date",
                                                         "_time_total_s",
                                                         "_pid",
                                                         "_hostname",
                                                         "_node_ip",
                                                         "time_this_iter_s",
                                                         "done",
                                                         "timesteps_total",
                                                         "episodes_total",
                                                         "training_iteration",
                                                         "trial_id",
                                                         "experiment_id",
                                                         "date",
                                                         "timestamp",
                                                         "time_total_s",
                                                         "pid",
                                                         "hostname",
                                                         "node_ip",
                                                         "config",
                                                         "time_since_restore",
                                                         "timesteps_since_restore",
                                                         "iterations_since_restore",
                                                         "warmup_time",
                                                         "experiment_tag"};

bool is_detailed(std::size_t key) { return key >= worker_date && key <= worker_node_ip; }

double seconds_between(Instant from, Instant to) { return std::max(0.0, Seconds(to - from).count()); }

}  // namespace

bool detailed_metrics_wanted() {
  for (const char* name : {"LOCKSTEP_DETAILED_METRICS", "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS",
                           "SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"}) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0' && std::string_view(text) != "0") return true;
  }
  return false;
}

void WorkerKeys::fill(Value& metrics, const WorkerTimes& times) {
  ++iterations_;
  time_total_ += times.time_this_iter;
  const auto set = [&](Key key, auto value) { metrics.emplace(std::string(kNames[key]), std::move(value)); };
  set(worker_timestamp, static_cast<long>(std::floor(times.timestamp)));
  set(worker_time_this_iter, times.time_this_iter);
  set(worker_training_iteration, iterations_);
  if (!detailed_) return;
  set(worker_date, date_string(WallTime(std::chrono::seconds(static_cast<long>(std::floor(times.timestamp))))));
  set(worker_time_total, time_total_);
  set(worker_pid, place_.pid);
  set(worker_hostname, place_.hostname);
  set(worker_node_ip, place_.node_ip);
}

std::span<const std::string_view> autofilled_keys() { return kNames; }

bool is_autofilled(std::string_view key) { return std::find(kNames.begin(), kNames.end(), key) != kNames.end(); }

bool Autofill::Date::update(double seconds) {
  const long whole = static_cast<long>(std::floor(seconds));
  if (whole == second && !text.empty()) return false;
  second = whole;
  text = date_string(WallTime(std::chrono::seconds(whole)));
  return true;
}

Autofill::Autofill(RunConstants run) : run_(std::move(run)) { static_assert(kKeys == key_count); }

void Autofill::begin_attempt(Instant start, Progress from) {
  start_ = previous_ = start;
  training_iteration_ = from.training_iteration;
  time_total_ = from.time_total;
  iterations_ = 0;
  time_ = worker_time_ = warmup_time_ = 0;
}

void Autofill::function_started(Place rank_zero, Instant at) {
  rank_zero_ = std::move(rank_zero);
  warmup_time_ = seconds_between(start_, at);
  constants_changed_ = true;
}

const Value& Autofill::fill(Value metrics, const WorkerTimes& worker, Instant now, WallTime wall) {
  if (!metrics.is_object())
    throw InternalError(std::string("[metrics] a report holds a ") + metrics.type_name() +
                        " instead of a dict of metrics");
  auto& reported = metrics.get_ref<Value::object_t&>();
  if (same_keys(reported))
    take_values(reported);
  else
    rebuild(reported);
  if (constants_changed_) set_constants();

  const double elapsed = seconds_between(previous_, now);
  previous_ = now;
  ++iterations_;
  ++training_iteration_;
  time_ += elapsed;
  time_total_ += elapsed;
  worker_time_ += worker.time_this_iter;

  const auto set = [this](Key key, auto value) {
    if (slots_[key] != nullptr) *slots_[key] = value;
  };
  set(worker_time_this_iter, worker.time_this_iter);
  set(worker_training_iteration, iterations_);
  set(worker_time_total, worker_time_);
  set(time_this_iter, elapsed);
  set(done, false);
  set(training_iteration, training_iteration_);
  set(time_total, time_total_);
  set(time_since_restore, time_);
  set(iterations_since_restore, iterations_);
  set_dates(worker.timestamp, unix_seconds(wall));
  return result_;
}

void Autofill::mark_done() {
  if (slots_[done] != nullptr) *slots_[done] = true;
}

bool Autofill::same_keys(const Value::object_t& metrics) const {
  const auto& result = result_.get_ref<const Value::object_t&>();
  if (result.empty() || metrics.size() != reported_) return false;
  for (std::size_t i = 0; i < reported_; ++i)
    if (metrics.begin()[i].first != result.begin()[i].first) return false;
  return true;
}

void Autofill::take_values(Value::object_t& metrics) {
  auto& result = result_.get_ref<Value::object_t&>();
  // An ordered dict is a vector whose operator[] takes keys only.
  for (std::size_t i = 0; i < reported_; ++i) result.begin()[i].second = std::move(metrics.begin()[i].second);
}

void Autofill::rebuild(Value::object_t& metrics) {
  slots_.fill(nullptr);
  std::array<bool, kKeys> taken{};
  for (const auto& [key, value] : metrics) {
    const auto found = std::find(kNames.begin(), kNames.end(), key);
    if (found != kNames.end()) taken[static_cast<std::size_t>(found - kNames.begin())] = true;
  }
  reported_ = metrics.size();
  Value::object_t result = std::move(metrics);
  // The slots point into the dict: it must not grow once they are set, and its keys are known to be distinct.
  result.reserve(reported_ + kKeys);
  for (std::size_t key = 0; key < kKeys; ++key) {
    if (taken[key] || (is_detailed(key) && !run_.detailed)) continue;
    result.emplace_back(std::string(kNames[key]), nullptr);
  }
  result_ = Value::object();
  auto& entries = result_.get_ref<Value::object_t&>();
  entries = std::move(result);
  auto at = entries.begin() + static_cast<std::ptrdiff_t>(reported_);
  for (std::size_t key = 0; key < kKeys; ++key)
    if (at != entries.end() && at->first == kNames[key]) slots_[key] = &(at++)->second;
  set_constants();
  date_.text.clear();
  worker_date_.text.clear();
}

void Autofill::set_constants() {
  constants_changed_ = false;
  const auto set = [this](Key key, const auto& value) {
    if (slots_[key] != nullptr) *slots_[key] = value;
  };
  set(worker_pid, rank_zero_.pid);
  set(worker_hostname, rank_zero_.hostname);
  set(worker_node_ip, rank_zero_.node_ip);
  set(pid, rank_zero_.pid);
  set(hostname, rank_zero_.hostname);
  set(node_ip, rank_zero_.node_ip);
  set(trial_id, run_.trial_id);
  set(experiment_id, run_.experiment_id);
  set(experiment_tag, run_.experiment_tag);
  set(config, run_.config);
  set(timesteps_since_restore, 0);
  set(warmup_time, warmup_time_);
}

void Autofill::set_dates(double worker, double driver) {
  const auto set = [this](Key key, const auto& value) {
    if (slots_[key] != nullptr) *slots_[key] = value;
  };
  if (worker_date_.update(worker)) {
    set(worker_timestamp, worker_date_.second);
    set(worker_date, worker_date_.text);
  }
  if (date_.update(driver)) {
    set(timestamp, date_.second);
    set(date, date_.text);
  }
}

}  // namespace lockstep::metrics
