#pragma once

#include <lockstep/value.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep::metrics {

/// What stays the same for a whole run.
struct RunConstants {
  std::string trial_id;       ///< "4913f_00000"
  std::string experiment_id;  ///< 32 hexadecimal digits
  std::string experiment_tag = "0";
  Value config = Value::object();  ///< the training function's configuration
  bool detailed = false;           ///< the keys of LOCKSTEP_DETAILED_METRICS too
};

/// Where a worker of the current attempt runs.
struct Place {
  std::string hostname;
  std::string node_ip;
  int pid = 0;
};

/// The progress of a run, from which a later attempt or a restored run continues.
struct Progress {
  long training_iteration = 0;
  double time_total = 0;  ///< seconds
};

/// When a report was made, as the worker saw it.
struct WorkerTimes {
  double timestamp = 0;       ///< seconds since 1970
  double time_this_iter = 0;  ///< seconds since its previous report, or since its function started
};

/// Whether LOCKSTEP_DETAILED_METRICS asks for the detailed keys: it is set, not empty and not "0". Ray's names,
/// TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS and the same with SGD_, work too.
bool detailed_metrics_wanted();

/// Every key that Autofill may add.
std::span<const std::string_view> autofilled_keys();
/// Whether `key` is one of them.
bool is_autofilled(std::string_view key);

/// Adds a worker's own view, the keys that begin with `_`, to one rank's metrics, for callbacks that want all ranks.
class WorkerKeys {
 public:
  explicit WorkerKeys(bool detailed) : detailed_(detailed) {}
  void set_place(Place place) { place_ = std::move(place); }
  /// Call it for each report of the attempt. A key that the user reported keeps the user's value.
  void fill(Value& metrics, const WorkerTimes& times);

 private:
  bool detailed_;
  Place place_;
  long iterations_ = 0;
  double time_total_ = 0;
};

/// Adds the autofilled keys to rank 0's metrics, after the reported ones, in a fixed order. A key that the user
/// reported keeps the user's value.
///
/// Keys that begin with `_` are the worker's own view and count within the attempt (`_training_iteration` starts at 1
/// in each). The others are the driver's: `training_iteration` and `time_total_s` continue from begin_attempt's
/// Progress; `time_this_iter_s` is the time since the previous report, or since the attempt's start. Not thread-safe;
/// used by the driver's loop only.
class Autofill {
 public:
  explicit Autofill(RunConstants run);

  /// A new attempt begins at `start` and continues from `from`.
  void begin_attempt(Instant start, Progress from = {});
  /// Rank 0 starts the function at `at`; `warmup_time` is the time from the attempt's start until then.
  void function_started(Place rank_zero, Instant at);

  /// The complete result of one report. `metrics` is a dict. Returns a reference to last(): copy it to keep it. Cheap
  /// as long as the reported keys do not change.
  const Value& fill(Value metrics, const WorkerTimes& worker, Instant now, WallTime wall);

  /// The latest result; an empty dict before the first.
  const Value& last() const { return result_; }
  /// The run has ended: sets `done` of last() to true, unless the user reported that key. Does nothing before the first
  /// report.
  void mark_done();
  Progress progress() const { return {training_iteration_, time_total_}; }

 private:
  static constexpr std::size_t kKeys = 27;
  /// "2022-07-14_20-05-25", formatted again only when the second changes.
  struct Date {
    long second = -1;
    std::string text;
    bool update(double seconds);
  };

  bool same_keys(const Value::object_t& metrics) const;
  void take_values(Value::object_t& metrics);
  void rebuild(Value::object_t& metrics);
  void set_constants();
  void set_dates(double worker, double driver);

  RunConstants run_;
  Place rank_zero_;
  Instant start_{};
  Instant previous_{};
  double warmup_time_ = 0;
  long training_iteration_ = 0;
  double time_total_ = 0;
  long iterations_ = 0;  ///< within the attempt, as the next two
  double time_ = 0;
  double worker_time_ = 0;
  bool constants_changed_ = false;
  Date date_, worker_date_;

  Value result_ = Value::object();
  std::size_t reported_ = 0;           ///< number of the user's keys in result_; they come first
  std::array<Value*, kKeys> slots_{};  ///< position of each autofilled key in result_; null: not present
};

}  // namespace lockstep::metrics
