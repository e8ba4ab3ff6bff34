#include "driver/recorder.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "wire/codec.h"

namespace lockstep::driver {
namespace {

constexpr Seconds kFlushEvery{0.2};
/// A checkpoint whose commit never comes (its rank died) must not keep its metrics for ever.
constexpr std::size_t kMostPending = 1'000;

}  // namespace

Recorder::Recorder(const RunPlan& plan, metrics::RunConstants constants, Console& console, sys::Files& files)
    : callbacks_(plan.options.run.callbacks),
      detailed_(constants.detailed),
      autofill_(std::move(constants)),
      sinks_(plan.record ? metrics::default_sinks(plan.directory(), files)
                         : std::vector<std::unique_ptr<metrics::ReportSink>>{}),
      console_(console),
      config_(plan.options.config),
      stop_at_(plan.options.run.stop) {
  all_ranks_wanted_ = std::ranges::any_of(callbacks_, &Callback::wants_all_ranks);
  decides_end_ = !stop_at_.empty() || std::ranges::any_of(callbacks_, &Callback::may_stop);
  for (Callback* callback : callbacks_) callback->take_stop_request();  // of a run before
}

void Recorder::guard(Callback& callback, const char* hook, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    // One that stands for something else, a hook of a backend, says itself what it is.
    const std::string name = callback.name();
    throw CallbackError(name.ends_with("()") ? name : name + "." + hook, error.what());
  }
  stop_ = callback.take_stop_request() || stop_;
}

void Recorder::start(const RunInfo& info, metrics::Progress from) {
  started_ = now();
  autofill_.begin_attempt(started_, from);
  for (auto& sink : sinks_) sink->start(config_);
  call("on_start", [&](Callback& callback) { callback.on_start(info); });
}

void Recorder::begin_attempt(int world_size, metrics::Progress from) {
  autofill_.begin_attempt(now(), from);
  metrics_.clear();
  rows_ = ReportRows(static_cast<std::size_t>(world_size));
  workers_.assign(static_cast<std::size_t>(world_size), metrics::WorkerKeys(detailed_));
}

void Recorder::function_started(int rank, const metrics::Place& place) {
  if (rank == 0) autofill_.function_started(place, now());
  workers_.at(static_cast<std::size_t>(rank)).set_place(place);
}

void Recorder::deliver(int rank, const std::vector<wire::Report>& reports) {
  for (const wire::Report& report : reports) {
    const bool is_result = !report.metrics.empty();
    if (is_result && all_ranks_wanted_) rows_.add(rank, report);
    if (is_result && rank == 0) record(report);
    if (report.has_checkpoint && rank == 0) remember_metrics(report.index);
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
                       " in the report; the run does not end by it as long as none is reported");
    if (value && *value >= least) stop_ = true;
  }
}

void Recorder::record(const wire::Report& report) {
  Value metrics = wire::decode_value(report.metrics);
  const Instant time = now();
  console_.progress(autofill_.progress().training_iteration + 1, metrics, time, time - started_);
  const Value& result = autofill_.fill(std::move(metrics), {report.timestamp, report.time_this_iter}, time, wall_now());
  for (auto& sink : sinks_) sink->write(result, autofill_.progress().training_iteration);
  if (!flush_due_) flush_due_ = time + ticks(kFlushEvery);
}

void Recorder::remember_metrics(int report) {
  metrics_[report] = last();
  if (metrics_.size() > kMostPending) metrics_.erase(metrics_.begin());
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

Value Recorder::take_metrics(int report) {
  auto found = metrics_.extract(report);
  return found.empty() ? Value::object() : std::move(found.mapped());
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
