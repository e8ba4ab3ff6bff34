#pragma once

#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>
#include <lockstep/result.h>
#include <lockstep/value.h>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The run, as a callback sees it at its start.
struct RunInfo {
  std::string name;
  std::filesystem::path path;
  std::string trial_id;
  std::string experiment_id;
  Value config;
  int world_size = 0;
  std::string trainer;
};

/// Hooks into a run, called in the driver, in the thread that called fit(), one at a time. Every body is empty by
/// default. A callback that throws ends the run with an error that names it. Callbacks may take their time: workers go
/// on meanwhile.
class Callback {
 public:
  virtual ~Callback() = default;
  /// How errors name it.
  virtual std::string name() const { return "Callback"; }
  /// Whether on_report wants the metrics of all ranks; otherwise they are not decoded.
  virtual bool wants_all_ranks() const { return false; }
  /// Whether should_stop() is asked; every report waits for its answer then, on all ranks.
  virtual bool may_stop() const { return false; }

  virtual void on_start(const RunInfo&) {}
  /// Every attempt, the first (0) too, once all its workers run.
  virtual void on_attempt_started(int /*attempt*/) {}
  /// Rank 0 reported: its metrics with the autofilled keys.
  virtual void on_result(const Value& /*metrics*/) {}
  /// Asked behind on_result, where may_stop() is true: whether the run ends, on every rank after this report.
  virtual bool should_stop(const Value& /*metrics*/) { return false; }
  /// All ranks made their n-th report of the attempt: metrics by rank, with the keys of the worker (`_timestamp` and so
  /// on); null for a rank that ended without it.
  virtual void on_report(const std::vector<Value>& /*metrics*/) {}
  /// A checkpoint was committed.
  virtual void on_checkpoint(const Checkpoint&, const Value& /*metrics*/) {}
  /// An attempt ended badly, the first failing rank first; `again` tells whether another one follows.
  virtual void on_attempt_failed(const std::vector<Failure>&, bool /*again*/) {}
  virtual void on_end(const Result&) {}

  /// Ends the run early, from any hook: on every rank after the same report, one of the next.
  void request_stop() { stop_requested_ = true; }
  /// For the driver: whether request_stop() was called since the last time.
  bool take_stop_request() { return std::exchange(stop_requested_, false); }

 private:
  bool stop_requested_ = false;
};

}  // namespace lockstep
