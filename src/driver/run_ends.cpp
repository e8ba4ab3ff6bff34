// How a run's effects begin and end.

#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/failures.h"
#include "driver/run_effects.h"
#include "store/address.h"

namespace lockstep::driver {

RunEffects::RunEffects(const RunPlan& plan, const AgentAccess& agent, Clock& clock)
    : plan_(plan),
      clock_(clock),
      service_(plan.backend.service.get()),
      console_(plan.options.run.verbose, plan.options.run.log_to_console, Screen::of_process(), plan.options.run.name),
      book_(plan, clock),
      reconnect_(agent.reconnect),
      run_(agent.run),
      agent_(std::in_place, agent.socket, agent.run),
      keeper_(book_.directory(), plan.options.run.checkpoint, [this](const std::string& text) { alert(text); }) {}

int RunEffects::open(Answers& answers) {
  book_.open();
  store::RunRecord& record = book_.record();
  keeper_.set_next_seq(plan_.restore ? record.next_seq : first_seq());
  record.next_seq = keeper_.next_seq();
  record.validates = plan_.wiring.validations != nullptr;
  book_.write_settings();
  metrics::RunConstants constants{record.trial_id, record.experiment_id, "0", plan_.options.config,
                                  metrics::detailed_metrics_wanted()};
  recorder_.emplace(plan_, std::move(constants), console_, clock_, book_.files());
  logs_.emplace(plan_.group.record ? book_.directory().logs() : "", book_.files());
  say("lockstep: run " + in_quotes(record.name) + " in " + store::shown(book_.directory().path()));
  const RunInfo info{record.name,          book_.directory().path(), record.trial_id,
                     record.experiment_id, plan_.options.config,     plan_.options.scaling.num_workers.most,
                     plan_.trainer};
  guarded(answers, [&] { recorder_->start(info, {record.training_iteration, record.time_total_s}); });
  if (recorder_->take_stop()) answers.push_back(StopWanted{});
  return book_.first_attempt() - 1;
}

/// A run that resumes from another run's checkpoint numbers its own after that one.
int RunEffects::first_seq() const {
  const auto& from = plan_.options.resume_from;
  const auto manifest = from ? from->metadata() : std::nullopt;
  return manifest ? std::max(0, number_in<int>(*manifest, "seq")) : 0;
}

/// A line about the run.
void RunEffects::say(const std::string& text) {
  if (plan_.group.record) console_.line(text);
}

/// A line about workers that were started for this run.
void RunEffects::say_of_workers(const std::string& text) {
  if (!plan_.group.keep_workers) say("lockstep: " + text);
}

/// Shows a warning once and adds it to the record.
void RunEffects::alert(const std::string& text) {
  if (book_.add_warning(text)) console_.alert(text);
}

// ---------------------------------------------------------------- the end

Result RunEffects::close(const EndRun& end) {
  book_.finish(end);
  closing([&] { keeper_.persist_latest(); });
  drop_partials(end.outcome);
  finish_files();
  const store::RunRecord& record = book_.record();
  Result result;
  result.path = book_.directory().path();
  result.state = record.state;
  result.config = plan_.options.config;
  result.metrics = recorder_->last().empty() ? record.metrics : recorder_->last();
  result.checkpoint = keeper_.latest();
  result.best_checkpoints = keeper_.best();
  result.failures = record.failures;
  result.world_sizes = record.world_sizes();
  result.error = record.error;
  result.trainer = record.trainer;
  call_on_end(result);
  console_.finish();
  const bool ended_early = end.outcome != Outcome::finished && end.outcome != Outcome::failed;
  if (ended_early && !pids_.empty() && finished_ < placement_.world_size())
    say_of_workers(counted_workers(placement_.world_size() - finished_) + " stopped");
  say("lockstep: run " + in_quotes(record.name) + " " + record.state + " after " +
      human_duration(book_.time_here().count()) + "; results in " + store::shown(book_.directory().path()));
  return result;
}

std::size_t RunEffects::checks_left() {
  Validations* validations = plan_.wiring.validations;
  if (validations == nullptr) return 0;
  const bool goes_on = validations->goes_on();  // asked first: what it found before its end is taken
  try {
    take_validations();
  } catch (const InterruptError&) {
    throw;
  } catch (const Error& error) {
    console_.warning(error.what());
  }
  return goes_on ? validations->waiting().size() : 0;
}

/// Uncommitted files are useless, and a full disk needs the space.
void RunEffects::drop_partials(Outcome outcome) {
  if (!plan_.group.record || outcome == Outcome::finished) return;
  try {
    book_.directory().remove_partials();
  } catch (const StorageError& error) {
    log_debug(error.what());  // the run's own error matters more
  }
}

/// A file that cannot be closed must not keep the others from being closed, least of all the record.
void RunEffects::finish_files() {
  closing([&] { recorder_->finish(); });
  keeper_.let_go_all();
  closing([&] {
    if (plan_.group.record) retain();
  });
  closing([&] { save(); });
}

void RunEffects::closing(const std::function<void()>& body) {
  try {
    body();
  } catch (const StorageError& error) {
    if (book_.record().state != "finished") return console_.warning(error.what());
    Failure failure;
    failure.kind = FailureKind::storage;
    failure.message = error.what();
    failure.attempt = attempt_;
    note(failure);
    book_.fail(describe({failure}));
  }
}

void RunEffects::call_on_end(Result& result) {
  try {
    recorder_->call_last("on_end", [&](Callback& callback) { callback.on_end(result); });
  } catch (const CallbackError& error) {
    if (!result.error.empty()) return;
    if (result.state == "interrupted") return console_.warning(error.what());
    Failure failure;
    failure.kind = FailureKind::callback;
    failure.message = error.what();
    failure.attempt = attempt_;
    failure.time = unix_seconds(clock_.wall_now());
    book_.record().failures.push_back(failure);
    book_.fail(error.what());
    result.state = book_.record().state;
    result.error = book_.record().error;
    result.failures = book_.record().failures;
    save();
  } catch (const InterruptError&) {
    log_debug("Ctrl-C ended on_end of a callback");  // the run itself is over
  }
}

}  // namespace lockstep::driver
