#pragma once

#include <lockstep/callback.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

/// Where reports go: rank 0's, filled up, to the files, the callbacks and the console; every rank's to callbacks that
/// ask. Used by the driver's thread alone.
class Recorder {
 public:
  /// `files` is borrowed: the sinks write through it.
  Recorder(const RunPlan& plan, metrics::RunConstants constants, Console& console, sys::Files& files = sys::files());

  /// Opens the files, calls on_start.
  void start(const RunInfo& info, metrics::Progress from);
  void begin_attempt(int world_size, metrics::Progress from);
  void function_started(int rank, const metrics::Place& place);
  /// One rank's reports, in order. Throws StorageError or CallbackError.
  void deliver(int rank, const std::vector<wire::Report>& reports);
  /// A rank's function is over: others no longer wait for its reports.
  void finished(int rank);
  /// A rank begins anew, alone.
  void restarted(int rank);
  /// The filled-up metrics of rank 0's report with a checkpoint, or of the report before a checkpoint alone; forgets
  /// them.
  Value take_metrics(int report);
  void flush();
  /// When flush() is due; nothing while all is written.
  std::optional<Instant> flush_due() const { return flush_due_; }
  /// The last report, `done`; closes the files, all of them though one cannot be: that error is thrown then.
  const Value& finish();
  const Value& last() const { return autofill_.last(); }
  metrics::Progress progress() const { return autofill_.progress(); }
  /// Whether each of rank 0's reports is looked at for the end of the run, by a callback or by RunConfig::stop.
  bool decides_end() const { return decides_end_; }
  /// Whether the run is to end early; forgets it.
  bool take_stop() { return std::exchange(stop_, false); }

  /// Calls one hook of every callback; throws CallbackError naming the one that raised.
  template <class Hook>
  void call(const char* hook, Hook&& with) {
    for (Callback* callback : callbacks_) guard(*callback, hook, [&] { with(*callback); });
  }
  /// The same for the last hook, which every callback hears, though another one raises.
  template <class Hook>
  void call_last(const char* hook, Hook&& with) {
    std::optional<CallbackError> raised;
    for (Callback* callback : callbacks_) {
      try {
        guard(*callback, hook, [&] { with(*callback); });
      } catch (const CallbackError& error) {
        if (!raised) raised = error;
      }
    }
    if (raised) throw *raised;
  }

 private:
  void guard(Callback& callback, const char* hook, const std::function<void()>& body);
  void record(const wire::Report& report);
  void look_for_end();
  void remember_metrics(int report);
  void release_rows();

  std::vector<Callback*> callbacks_;
  bool all_ranks_wanted_ = false;
  bool decides_end_ = false;
  bool stop_ = false;
  bool detailed_;
  metrics::Autofill autofill_;
  std::vector<std::unique_ptr<metrics::ReportSink>> sinks_;
  Console& console_;
  Instant started_{};
  Value config_;
  std::map<std::string, double> stop_at_;  ///< RunConfig::stop
  std::set<std::string> missing_;          ///< of its metrics, those that were told of
  std::map<int, Value> metrics_;           ///< by report, of those with a checkpoint not committed yet
  ReportRows rows_;
  std::vector<metrics::WorkerKeys> workers_;  ///< by rank
  std::optional<Instant> flush_due_;
};

}  // namespace lockstep::driver
