#include "driver/run_book.h"

#include <algorithm>

#include "base/ids.h"
#include "base/json.h"
#include "driver/failures.h"
#include "store/function_file.h"

namespace lockstep::driver {
namespace {

const char* state_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      return "finished";
    case Outcome::failed:
      return "failed";
    case Outcome::interrupted:
      return "interrupted";
    case Outcome::preempted:
      return "preempted";
    case Outcome::stopped:
      return "stopped";
  }
  return "failed";
}

}  // namespace

RunBook::RunBook(const RunPlan& plan, Clock& clock)
    : plan_(plan), clock_(clock), directory_(plan.directory(), files_) {}

void RunBook::open() {
  started_ = clock_.now();
  if (plan_.restore) {
    directory_.open();
    files_.enter(directory_.path());
    directory_.lock();
    record_ = store::RunRecord::from_value(directory_.read_run_json());
    record_.end_attempt("died", record_.updated);
    state_before_ = record_.state == "running" ? "died" : record_.state;
  } else {
    if (plan_.group.record) directory_.create();
    if (plan_.group.record) files_.enter(directory_.path());
    if (plan_.group.record) directory_.lock();
    record_.name = plan_.options.run.name;
    record_.created = unix_seconds(clock_.wall_now());
    record_.trial_id = random_hex(5) + "_00000";
    record_.experiment_id = random_hex(32);
  }
  record_.trainer = plan_.trainer;
  record_.state = "running";
  record_.error.clear();
  record_.warnings.clear();
  record_.finished = 0;
  record_.num_workers = plan_.options.scaling.num_workers.most;
  record_.config_run = plan_.settings();
  if (!plan_.metadata.empty()) record_.metadata = plan_.metadata;
  first_attempt_ = plan_.restore ? record_.attempt + 1 : 0;
  record_.attempt = first_attempt_;
  time_before_ = record_.time_total_s;
}

void RunBook::write_settings() {
  // run.json comes last: with it the directory is a run that can be restored.
  if (plan_.group.record) directory_.write_file("params.json", to_pretty_json(plan_.options.config));
  if (plan_.group.record && !plan_.function.kept().empty()) save_function();
  save();
}

void RunBook::save_function() {
  if (plan_.restore && record_.function_sha256 != plan_.function.sha256) {
    // function.pkl and run.json are not replaced at the same time. Until run.json is written again, either hash is
    // right.
    record_.function_sha256_next = plan_.function.sha256;
    save();
  }
  store::write_function(files_, directory_.path(), plan_.function.kept(), plan_.function.sha256);
  record_.function_sha256 = plan_.function.sha256;
  record_.function_sha256_next.clear();
}

void RunBook::save() {
  record_.time_total_s = time_total().count();
  record_.sign(unix_seconds(clock_.wall_now()));
  if (plan_.group.record) directory_.write_run_json(record_.to_value());
  saved_ = true;
}

bool RunBook::add_warning(const std::string& text) {
  if (std::ranges::find(record_.warnings, text) != record_.warnings.end()) return false;
  record_.warnings.push_back(text);
  return true;
}

void RunBook::finish(const EndRun& end) {
  record_.state = state_name(end.outcome);
  record_.finished = unix_seconds(clock_.wall_now());
  record_.end_attempt(record_.state, record_.finished);
  if (end.outcome != Outcome::failed) return;
  record_.error = describe(end.failures);
  const FailureKind kind = end.failures.front().kind;
  if (plan_.group.record && (kind == FailureKind::hang || kind == FailureKind::heartbeat))
    record_.error += "\nthe stacks of all ranks are in " + stacks_file(end.failures.front().attempt).string();
}

void RunBook::fail(const std::string& error) {
  record_.state = "failed";
  record_.error = error;
}

void RunBook::leave(const std::string& error) {
  if (!saved_) return;
  record_.state = "failed";
  if (record_.error.empty()) record_.error = error;
  record_.finished = unix_seconds(clock_.wall_now());
  record_.end_attempt("failed", record_.finished);
  try {
    save();
  } catch (const StorageError&) {
    // The caller's error matters more.
  }
}

std::filesystem::path RunBook::stacks_file(int attempt) const {
  return directory_.logs() / ("stacks_attempt_" + std::to_string(attempt) + ".txt");
}

}  // namespace lockstep::driver
