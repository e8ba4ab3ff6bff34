#pragma once

#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>
#include <lockstep/result.h>
#include <lockstep/value.h>
#include <string>
#include <vector>

namespace lockstep {

/// What a callback learns about the run at its start.
struct RunInfo {
  std::string name;
  std::filesystem::path path;
  std::string trial_id;
  std::string experiment_id;
  Value config;
  int world_size = 0;
  std::string trainer;
};

/// Hooks into a run. The driver calls them in the thread that called fit(), or the run's own after start(), one at a
/// time. Every hook does nothing by default. A callback that throws ends the run with an error that names it. Callbacks
/// may be slow: workers continue meanwhile.
class Callback {
 public:
  virtual ~Callback() = default;
  /// The name used in errors.
  virtual std::string name() const { return "Callback"; }
  /// Whether on_report is called; otherwise other ranks' metrics are not decoded.
  virtual bool wants_all_ranks() const { return false; }
  /// Whether should_stop() is called; if so, every report on every rank waits for its answer.
  virtual bool may_stop() const { return false; }

  virtual void on_start(const RunInfo&) {}
  /// All workers of an attempt run; also called for the first attempt (0).
  virtual void on_attempt_started(int /*attempt*/) {}
  /// Rank 0 reported: its metrics with the autofilled keys.
  virtual void on_result(const Value& /*metrics*/) {}
  /// Called after on_result if may_stop() is true. True ends the run: every rank stops after this report.
  virtual bool should_stop(const Value& /*metrics*/) { return false; }
  /// All ranks made their n-th report of the attempt: metrics by rank, with the keys of the worker (`_timestamp` and so
  /// on); null for a rank that ended without making it.
  virtual void on_report(const std::vector<Value>& /*metrics*/) {}
  /// A checkpoint was committed.
  virtual void on_checkpoint(const Checkpoint&, const Value& /*metrics*/) {}
  /// A committed checkpoint was checked: all its metrics, with those that were found.
  virtual void on_validated(const Checkpoint&, const Value& /*metrics*/) {}
  /// An attempt failed; the first failing rank comes first. `again` says whether it is retried.
  virtual void on_attempt_failed(const std::vector<Failure>&, bool /*again*/) {}
  virtual void on_end(const Result&) {}

  /// Ends the run early, from any hook: every rank stops after the same report, one of the next ones. If the callback
  /// serves several runs, the one whose hook calls this ends.
  void request_stop();
  /// For the driver: whether request_stop() was called outside of a hook since the last call of this function.
  bool take_stop_request();

 private:
  bool stop_requested_ = false;
};

}  // namespace lockstep
