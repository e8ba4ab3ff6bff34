#include "tune/function_trials.h"

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

/// A trial in a thread of this process: the only rank of its run. Its directory is made when it is needed, because most
/// trials of functions need none, and making it takes longer than they do.
class FunctionSession final : public Session {
 public:
  FunctionSession(TrialLoop& loop, Job& job, const std::string& experiment, const std::string& trainable)
      : loop_(loop),
        job_(job),
        experiment_(experiment),
        trainable_(trainable),
        directory_(job.directory),
        from_(job.start.checkpoint) {
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
  const std::string& experiment_name() const override { return experiment_; }
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
    if (loop_.interrupted()) told_ = true;
    return told_ || job_.ending;
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

  TrialLoop& loop_;
  Job& job_;
  const std::string& experiment_;
  const std::string& trainable_;
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
    over_ = loop_.report(job_, last_, path, wants_stop_);
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
  const store::RunDirectory before(directory_);
  store::RunRecord record;
  if (before.exists()) record = store::RunRecord::from_value(before.read_run_json());
  const double at = unix_seconds(wall_now());
  record.name = trial_name();
  record.trainer = trainable_;
  record.trial_id = trial_id();
  record.state = state;
  record.attempt = attempt();
  record.training_iteration = reports_;
  record.time_total_s = job_.time_before + Seconds(now() - job_.begun).count();
  record.next_seq = next_seq_.value_or(record.next_seq);
  if (record.created == 0) record.created = at - Seconds(now() - job_.begun).count();
  record.finished = at;
  if (!last_.is_null()) record.metrics = last_;
  record.begin_attempt(attempt(), 1, {}, at - Seconds(now() - job_.begun).count());
  record.end_attempt(state, at);
  record.error.clear();
  if (failure != nullptr) {
    record.failures.push_back(*failure);
    record.error = failure->message;
  }
  record.sign(at);
  store::RunDirectory(directory_).write_run_json(record.to_value());
}

std::string text_of(const Failure& failure) {
  return failure.type.empty() ? failure.message : failure.type + ": " + failure.message;
}

}  // namespace

TrialLoop::RunTrial function_trials(TrialLoop& loop, std::function<Value(Session&)> function, std::string trainable,
                                    const ExperimentSettings& settings) {
  const std::string metric = settings.metrics.size() == 1 ? settings.metrics[0] : "";
  return [&loop, function = std::move(function), trainable = std::move(trainable), metric,
          experiment = loop.directory().filename().string()](Job& job) {
    TrialLoop::Outcome outcome;
    std::optional<Failure> failure;
    bool left = false;  // because of StopTraining
    FunctionSession session(loop, job, experiment, trainable);
    try {
      Value returned = function(session);
      if (returned.is_number() && !metric.empty()) returned = Value{{metric, std::move(returned)}};
      if (!returned.is_null() && !session.is_over()) outcome.last_report = session.completed(std::move(returned));
    } catch (const StopTraining&) {
      left = true;
    } catch (const std::exception& error) {
      failure = failure_of(error);
    } catch (...) {
      failure.emplace().kind = FailureKind::exception;
      failure->message = "the function threw something that is not a std::exception";
    }
    outcome.interrupted = loop.interrupted() && !job.ending && !failure && (left || session.was_told());
    if (failure) outcome.error = text_of(*failure);
    session.close(failure ? "failed" : outcome.interrupted ? "interrupted" : "finished", failure ? &*failure : nullptr);
    return outcome;
  };
}

}  // namespace lockstep::tune
