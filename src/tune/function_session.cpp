#include "tune/function_session.h"

#include <lockstep/error.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "base/json.h"
#include "base/text.h"
#include "store/part_writer.h"
#include "store/positions.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "sys/node.h"

namespace lockstep::tune {
namespace {

/// A trial of a function: the only rank of its run. Its directory is made when it is needed, because most trials of
/// functions need none, and making it takes longer than they do.
class FunctionSession final : public Session {
 public:
  FunctionSession(TrialLink& link, const Job& job, const FunctionTrial& trial)
      : link_(link), job_(job), trial_(trial), directory_(job.directory), from_(job.start.checkpoint) {
    if (job.start.attempt == 0) return;
    tidy(job);
    if (std::filesystem::exists(directory_)) trial_dir();
  }

  int world_rank() const override { return 0; }
  int world_size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_world_size() const override { return 1; }
  int node_rank() const override { return 0; }
  const std::string& node_address(int rank) const override;
  int attempt() const override { return job_.start.attempt; }
  const Value& config() const override { return job_.start.config; }
  const std::string& experiment_name() const override { return trial_.experiment; }
  const std::string& trial_name() const override { return job_.start.name; }
  const std::string& trial_id() const override { return job_.start.id; }
  const std::string& trial_dir() const override;
  std::optional<Checkpoint> checkpoint() override;
  std::optional<Value> saved_position(const std::string& dataset) override;
  void keep_position(const std::string& dataset, std::function<Value()> position) override {
    positions_[dataset] = std::move(position);
  }
  const Value& data_plan() const override { return no_data_; }
  void report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) override;
  void barrier(std::chrono::duration<double>) override {}
  Bytes broadcast_from_rank_zero(Bytes bytes, std::chrono::duration<double>) override { return bytes; }
  void request_stop() override { wants_stop_ = true; }
  bool should_stop() override {
    asked_ = true;
    return over_ || stopping();
  }
  bool stopping() const override {
    if (link_.interrupted()) told_ = true;
    return told_ || link_.ending();
  }

  /// The metrics with what the experiment adds.
  Value completed(Value metrics);
  bool is_over() const { return over_; }
  /// Whether the function knows that the experiment is interrupted.
  bool was_told() const { return told_; }
  /// Completes the trial's directory, if it has one.
  void close(const std::string& state, const Failure* failure);

 private:
  std::string commit(const Checkpoint& checkpoint, const Value& result);

  TrialLink& link_;
  const Job& job_;
  const FunctionTrial& trial_;
  const std::string directory_;
  std::string from_;  ///< the newest committed checkpoint
  const Value no_data_ = Value::object();
  std::map<std::string, std::function<Value()>> positions_;
  Instant last_report_ = job_.begun;
  std::int64_t reports_ = job_.start.iterations;
  Value last_;
  std::optional<int> next_seq_;
  mutable bool has_directory_ = false;
  std::atomic<bool> wants_stop_ = false;
  std::atomic<bool> over_ = false;   ///< has made its last report
  std::atomic<bool> asked_ = false;  ///< should_stop() was called
  mutable std::atomic<bool> told_ = false;
};

const std::string& FunctionSession::node_address(int rank) const {
  static const std::string loopback = sys::kLoopback;
  if (rank != 0)
    throw ConfigError("[session] there is no rank " + std::to_string(rank) + "; the trial's function is its only rank");
  return loopback;
}

const std::string& FunctionSession::trial_dir() const {
  if (!std::exchange(has_directory_, true)) {
    sys::files().make_directories(directory_);
    store::RunDirectory(directory_).write_file("params.json", to_pretty_json(config()));
  }
  return directory_;
}

std::optional<Checkpoint> FunctionSession::checkpoint() {
  return from_.empty() ? std::nullopt : std::optional(Checkpoint::from_directory(from_));
}

std::optional<Value> FunctionSession::saved_position(const std::string& dataset) {
  const auto from = checkpoint();
  const auto names = from ? from->files() : std::vector<std::string>();
  if (std::find(names.begin(), names.end(), store::kPositionsName) == names.end()) return std::nullopt;
  const Value saved = store::decode_positions(from->read(store::kPositionsName));
  const auto found = saved.find(dataset);
  return found == saved.end() ? std::nullopt : std::optional(*found);
}

Value FunctionSession::completed(Value metrics) {
  if (!metrics.is_object())
    throw ConfigError("[session] a report is " + to_json(metrics) + "; it must be a dict of metrics");
  const Instant at = now();
  const auto add = [&](const char* key, Value value) {
    if (!metrics.contains(key)) metrics[key] = std::move(value);
  };
  add("training_iteration", ++reports_);
  add("time_this_iter_s", Seconds(at - std::exchange(last_report_, at)).count());
  add("time_total_s", job_.time_before + Seconds(at - job_.begun).count());
  return metrics;
}

void FunctionSession::report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) {
  // What a function reports after its last report is not recorded: the decision was made without it.
  if (!over_) {
    last_ = completed(metrics);
    const std::string path = checkpoint ? commit(*checkpoint, last_) : "";
    over_ = link_.report(last_, path, wants_stop_);
  }
  if (over_ && !asked_) throw StopTraining{};
}

std::string FunctionSession::commit(const Checkpoint& checkpoint, const Value& result) {
  store::RunDirectory trial(trial_dir());
  if (!next_seq_) next_seq_ = trial.next_seq();
  store::Manifest manifest;
  manifest.seq = (*next_seq_)++;
  manifest.attempt = job_.start.attempt;
  manifest.ranks = {0};
  manifest.created = unix_seconds(wall_now());
  manifest.metrics = result;
  const std::string partial = store::RunDirectory::partial_name(manifest.seq);
  store::PartWriter writer(sys::files(), trial.path() / partial);
  std::vector<Bytes> held;
  std::vector<store::MemoryFile> files;
  const auto hold = [&](const std::string& name, Bytes bytes) {
    held.push_back(std::move(bytes));  // moving a vector leaves its bytes where they are
    files.push_back({name, std::as_bytes(std::span(held.back()))});
  };
  if (const auto path = checkpoint.path())
    manifest.files = writer.copy_directory(*path, {store::kPositionsName});
  else
    for (const std::string& name : checkpoint.files()) hold(name, checkpoint.read(name));
  if (!positions_.empty()) {
    Value datasets = Value::object();
    for (const auto& [name, position] : positions_) datasets[name] = position();
    hold(store::kPositionsName, store::encode_positions(datasets));
  }
  for (FileEntry& entry : writer.write_files(files)) manifest.files.push_back(std::move(entry));
  return from_ = trial.commit(partial, manifest).string();
}

void FunctionSession::close(const std::string& state, const Failure* failure) {
  if (!has_directory_) return;
  close_trial_directory(job_, trial_, {state, failure, reports_, last_, next_seq_});
}

std::string text_of(const Failure& failure) {
  return failure.type.empty() ? failure.message : failure.type + ": " + failure.message;
}

}  // namespace

void close_trial_directory(const Job& job, const FunctionTrial& trial, const TrialEnd& end) {
  store::RunDirectory directory(job.directory);
  store::RunRecord record;
  if (directory.exists()) record = store::RunRecord::from_value(directory.read_run_json());
  const double at = unix_seconds(wall_now());
  const double elapsed = Seconds(now() - job.begun).count();
  record.name = job.start.name;
  record.trainer = trial.trainable;
  record.trial_id = job.start.id;
  record.state = end.state;
  record.attempt = job.start.attempt;
  record.training_iteration = end.reports;
  record.time_total_s = job.time_before + elapsed;
  record.next_seq = end.next_seq.value_or(record.next_seq);
  if (record.created == 0) record.created = at - elapsed;
  record.finished = at;
  if (!end.last.is_null()) record.metrics = end.last;
  record.begin_attempt(record.attempt, 1, {}, at - elapsed);
  record.end_attempt(end.state, at);
  record.error.clear();
  if (end.failure != nullptr) {
    record.failures.push_back(*end.failure);
    record.error = end.failure->message;
  }
  record.sign(at);
  directory.write_run_json(record.to_value());
}

TrialLoop::Outcome run_function(const std::function<Value(Session&)>& function, TrialLink& link, const Job& job,
                                const FunctionTrial& trial) {
  TrialLoop::Outcome outcome;
  std::optional<Failure> failure;
  bool left = false;  // because of StopTraining
  FunctionSession session(link, job, trial);
  try {
    Value returned = function(session);
    if (returned.is_number() && !trial.metric.empty()) returned = Value{{trial.metric, std::move(returned)}};
    if (!returned.is_null() && !session.is_over()) outcome.last_report = session.completed(std::move(returned));
  } catch (const StopTraining&) {
    left = true;
  } catch (const std::exception& error) {
    failure = failure_of(error);
  } catch (...) {
    failure.emplace().kind = FailureKind::exception;
    failure->message = "the function threw something that is not a std::exception";
  }
  outcome.interrupted = link.interrupted() && !link.ending() && !failure && (left || session.was_told());
  if (failure) outcome.error = text_of(*failure);
  session.close(failure ? "failed" : outcome.interrupted ? "interrupted" : "finished", failure ? &*failure : nullptr);
  return outcome;
}

}  // namespace lockstep::tune
