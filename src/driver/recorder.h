#pragma once

#include <lockstep/callback.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/clock.h"
#include "driver/console.h"
#include "driver/report_rows.h"
#include "driver/run_plan.h"
#include "metrics/autofill.h"
#include "metrics/sink.h"

namespace lockstep::driver {

/// A callback raised; the message names it.
class CallbackError : public Error {
 public:
  /// `place`: the callback and its hook.
  CallbackError(const std::string& place, const std::string& what)
      : Error("[callback] " + place + " raised: " + what) {}
};

/// Ctrl-C ended what a callback did.
class InterruptError : public Error {
 public:
  InterruptError() : Error("[callback] interrupted") {}
};

/// Passes on reports. Those of rank 0, autofilled, go to the files, the callbacks and the console; those of all ranks
/// go to callbacks that ask for them. Used by the driver's thread only.
class Recorder {
 public:
  /// `files` is borrowed: the sinks write through it.
  Recorder(const RunPlan& plan, metrics::RunConstants constants, Console& console, Clock& clock,
           sys::Files& files = sys::files());

  /// Opens the files, calls on_start.
  void start(const RunInfo& info, metrics::Progress from);
  void begin_attempt(int world_size, metrics::Progress from);
  void function_started(int rank, const metrics::Place& place);
  /// Takes one rank's reports, in order. Adds to `kept` the autofilled metrics of rank 0's reports with a checkpoint,
  /// by report; for a checkpoint without metrics, those of the previous report. Throws StorageError, CallbackError,
  /// InterruptError or WireError; then `kept` has the metrics up to this report.
  void deliver(int rank, const std::vector<wire::Report>& reports, std::vector<std::pair<int, Value>>& kept);
  /// A rank's function has ended; other ranks no longer wait for its reports.
  void finished(int rank);
  /// A rank is restarted alone.
  void restarted(int rank);
  /// A running rank takes part again: its next report belongs to the others' next row.
  void joined(int rank);
  void flush();
  /// When flush() is due; nothing if everything is written.
  std::optional<Instant> flush_due() const { return flush_due_; }
  /// Marks the last report as `done` and closes all files. If one cannot be closed, its error is thrown after the
  /// others are closed.
  const Value& finish();
  const Value& last() const { return autofill_.last(); }
  metrics::Progress progress() const { return autofill_.progress(); }
  /// Whether each report of rank 0 may end the run, by a callback or by RunConfig::stop.
  bool decides_end() const { return decides_end_; }
  /// Whether the run should end early; resets it.
  bool take_stop() { return std::exchange(stop_, false); }

  /// Calls one hook of every callback; throws CallbackError naming the one that raised, or InterruptError.
  template <class Hook>
  void call(const char* hook, Hook&& with) {
    for (Callback* callback : callbacks_) guard(*callback, hook, [&] { with(*callback); });
  }
  /// The same for the last hook, which is called for every callback even if another one raises.
  template <class Hook>
  void call_last(const char* hook, Hook&& with) {
    std::exception_ptr raised;
    for (Callback* callback : callbacks_) {
      try {
        guard(*callback, hook, [&] { with(*callback); });
      } catch (const Error&) {
        if (!raised) raised = std::current_exception();
      }
    }
    if (raised) std::rethrow_exception(raised);
  }

 private:
  void guard(Callback& callback, const char* hook, const std::function<void()>& body);
  void fill(const wire::Report& report);
  void write();
  void look_for_end();
  void release_rows();

  std::vector<Callback*> callbacks_;
  bool all_ranks_wanted_ = false;
  bool decides_end_ = false;
  bool stop_ = false;
  bool detailed_;
  metrics::Autofill autofill_;
  std::vector<std::unique_ptr<metrics::ReportSink>> sinks_;
  Console& console_;
  Clock& clock_;
  Instant started_{};
  Value config_;
  std::map<std::string, double> stop_at_;  ///< RunConfig::stop
  std::set<std::string> missing_;          ///< its metrics that were warned about
  ReportRows rows_;
  std::vector<metrics::WorkerKeys> workers_;  ///< by rank
  std::vector<metrics::Place> places_;        ///< by rank, of those whose function has started
  std::optional<Instant> flush_due_;
};

}  // namespace lockstep::driver
