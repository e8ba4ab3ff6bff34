#include "driver/recorder.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "driver/running_hook.h"
#include "wire/codec.h"

namespace lockstep::driver {
namespace {

constexpr Seconds kFlushEvery{0.2};

}  // namespace

Recorder::Recorder(const RunPlan& plan, metrics::RunConstants constants, Console& console, Clock& clock,
                   sys::Files& files)
    : callbacks_(plan.options.run.callbacks),
      detailed_(constants.detailed),
      autofill_(std::move(constants)),
      sinks_(plan.group.record ? metrics::default_sinks(plan.directory(), files)
                               : std::vector<std::unique_ptr<metrics::ReportSink>>{}),
      console_(console),
      clock_(clock),
      config_(plan.options.config),
      stop_at_(plan.options.run.stop) {
  all_ranks_wanted_ = std::ranges::any_of(callbacks_, &Callback::wants_all_ranks);
  decides_end_ = !stop_at_.empty() || std::ranges::any_of(callbacks_, &Callback::may_stop);
  for (Callback* callback : callbacks_) callback->take_stop_request();  // from an earlier run
}

void Recorder::guard(Callback& callback, const char* hook, const std::function<void()>& body) {
  const RunningHook running(callback);
  try {
    body();
  } catch (const InterruptError&) {
    throw;
  } catch (const std::exception& error) {
    throw CallbackError(callback.name() + "." + hook, error.what());
  }
  const bool asked = callback.take_stop_request();
  stop_ = stop_ || asked || running.stop_requested();
}

void Recorder::start(const RunInfo& info, metrics::Progress from) {
  started_ = clock_.now();
  autofill_.begin_attempt(started_, from);
  for (auto& sink : sinks_) sink->start(config_);
  call("on_start", [&](Callback& callback) { callback.on_start(info); });
}

void Recorder::begin_attempt(int world_size, metrics::Progress from) {
  autofill_.begin_attempt(clock_.now(), from);
  rows_ = ReportRows(static_cast<std::size_t>(world_size));
  workers_.assign(static_cast<std::size_t>(world_size), metrics::WorkerKeys(detailed_));
  places_.assign(static_cast<std::size_t>(world_size), {});
}

void Recorder::function_started(int rank, const metrics::Place& place) {
  if (rank == 0) autofill_.function_started(place, clock_.now());
  workers_.at(static_cast<std::size_t>(rank)).set_place(place);
  places_.at(static_cast<std::size_t>(rank)) = place;
}

void Recorder::deliver(int rank, const std::vector<wire::Report>& reports, std::vector<std::pair<int, Value>>& kept) {
  for (const wire::Report& report : reports) {
    const bool is_result = !report.metrics.empty();
    if (is_result && all_ranks_wanted_) rows_.add(rank, report);
    if (is_result && rank == 0) fill(report);
    if (report.has_checkpoint && rank == 0) kept.emplace_back(report.index, last());
    if (is_result && rank == 0) write();
    if (is_result && rank == 0 && !callbacks_.empty())
      call("on_result", [&](Callback& callback) { callback.on_result(last()); });
    if (is_result && rank == 0 && decides_end_) look_for_end();
  }
  if (all_ranks_wanted_) release_rows();
}

void Recorder::look_for_end() {
  call("should_stop", [&](Callback& callback) {
    if (callback.may_stop() && callback.should_stop(last())) stop_ = true;
  });
  for (const auto& [name, least] : stop_at_) {
    const auto value = number_at(last(), name);
    if (!value && missing_.insert(name).second)
      console_.warning("RunConfig stop: there is no number " + in_quotes(name) +
                       " in the report; until it is reported, it does not end the run");
    if (value && *value >= least) stop_ = true;
  }
}

void Recorder::fill(const wire::Report& report) {
  Value metrics = wire::decode_value(report.metrics);
  const Instant time = clock_.now();
  console_.progress(autofill_.progress().training_iteration + 1, metrics, time, time - started_);
  autofill_.fill(std::move(metrics), {report.timestamp, report.time_this_iter}, time, clock_.wall_now());
}

/// Writes the last report to the files.
void Recorder::write() {
  for (auto& sink : sinks_) sink->write(last(), autofill_.progress().training_iteration);
  if (!flush_due_) flush_due_ = clock_.now() + ticks(kFlushEvery);
}

void Recorder::release_rows() {
  while (const auto reports = rows_.next()) {
    std::vector<Value> row(reports->size());
    for (std::size_t rank = 0; rank < row.size(); ++rank) {
      const auto& report = (*reports)[rank];
      if (!report) continue;
      row[rank] = wire::decode_value(report->metrics);
      workers_.at(rank).fill(row[rank], {report->timestamp, report->time_this_iter});
    }
    call("on_report", [&](Callback& callback) {
      if (callback.wants_all_ranks()) callback.on_report(row);
    });
  }
}

void Recorder::finished(int rank) {
  if (!all_ranks_wanted_) return;
  rows_.finish(rank);
  release_rows();
}

void Recorder::restarted(int rank) {
  workers_.at(static_cast<std::size_t>(rank)) = metrics::WorkerKeys(detailed_);
  if (!all_ranks_wanted_) return;
  rows_.restart(rank);
  release_rows();
}

void Recorder::joined(int rank) {
  restarted(rank);
  function_started(rank, places_.at(static_cast<std::size_t>(rank)));
}

void Recorder::flush() {
  flush_due_.reset();
  for (auto& sink : sinks_) sink->flush();
}

const Value& Recorder::finish() {
  autofill_.mark_done();
  flush_due_.reset();
  std::exception_ptr error;
  for (auto& sink : sinks_) {
    try {
      sink->close();
    } catch (const StorageError&) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return autofill_.last();
}

}  // namespace lockstep::driver
