#include "tune/trial_loop.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "store/checkpoint_list.h"
#include "store/run_directory.h"
#include "store/score.h"
#include "sys/sockets.h"
#include "tune/experiment_settings.h"

namespace lockstep::tune {
namespace {

namespace fs = std::filesystem;

constexpr auto kBetweenLines = 10s;       ///< of progress
constexpr auto kBetweenRemovals = 200ms;  ///< of checkpoints, each of which waits for the database

/// 12 of "checkpoint_000012"; nothing if it is no checkpoint's name.
std::optional<int> seq_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename();
  constexpr std::string_view kPrefix = "checkpoint_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int seq = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kPrefix.size(), end, seq);
  return read.ec == std::errc() && read.ptr == end ? std::optional(seq) : std::nullopt;
}

}  // namespace

TrialLoop::TrialLoop(Experiment& experiment, Options options)
    : experiment_(experiment),
      options_(std::move(options)),
      decides_(kind_of_scheduler(experiment.settings()) != "fifo"),
      done_(sys::event_descriptor()),
      console_(options_.verbose, "none", driver::Screen::of_process()) {}

void TrialLoop::run(int most, sys::SignalWatch& signals, const RunTrial& run_trial) {
  {
    std::vector<std::jthread> threads;
    std::atomic<int> left = most;
    for (int i = 0; i < most; ++i)
      threads.emplace_back([&] {
        work(run_trial);
        if (--left == 0) ::eventfd_write(done_.get(), 1);
      });
    watch(signals);
  }
  if (problem_) std::rethrow_exception(problem_);
  remove_unneeded();
  if (!interrupted_)
    for (Callback* each : options_.callbacks) each->on_experiment_end(options_.directory);
  show(true);
}

void TrialLoop::remember() {
  if (options_.stoppers.empty() && options_.stop_functions.empty()) return;
  for (TrialNumber number = 0; number < experiment_.size(); ++number) {
    const Trial trial = experiment_.trial(number);
    if (trial.state == TrialState::pending && trial.checkpoint.empty()) continue;  // it begins anew
    for (const Value& result : experiment_.results(number)) {
      for (const auto& each : options_.stoppers) each->on_result(number, result);
      for (const auto& each : options_.stop_functions) each(trial.id, result);
    }
  }
}

void TrialLoop::watch(sys::SignalWatch& signals) {
  pollfd items[] = {{done_.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  const auto& budget = experiment_.settings().time_budget;
  std::optional<Instant> deadline;
  if (budget) deadline = begun_ + ticks(Seconds(*budget));
  Instant next_line = begun_ + kBetweenLines;
  for (;;) {
    const Instant until = deadline ? std::min(*deadline, next_line) : next_line;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
    ::poll(items, 2, static_cast<int>(std::clamp<long>(wait, 0, 3'600'000)));
    if (items[0].revents != 0) return;
    if (const int signal = signals.take(); signal != 0) {
      const std::lock_guard lock(mutex_);
      if (interrupted_) {  // the second one: trials do not end by themselves
        experiment_.sync();
        std::signal(signal, SIG_DFL);
        std::raise(signal);
      }
      interrupt();
    }
    const std::lock_guard lock(mutex_);
    if (deadline && now() >= *deadline) {
      deadline.reset();
      stop_all();
    }
    if (now() >= next_line) {
      next_line = now() + kBetweenLines;
      show(false);
    }
  }
}

void TrialLoop::work(const RunTrial& run_trial) {
  std::unique_lock lock(mutex_);
  try {
    while (!over_ && start_one(lock, run_trial)) {
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (!problem_) problem_ = std::current_exception();
    interrupt();
  }
  over_ = over_ || interrupted_;
  changed_.notify_all();
}

/// Runs a trial, or waits until there may be one. Returns false if there will be none.
bool TrialLoop::start_one(std::unique_lock<std::mutex>& lock, const RunTrial& run_trial) {
  if (interrupted_) return false;
  auto start = experiment_.next();
  if (!start && running_.empty()) {
    if (!experiment_.is_done())
      throw InternalError("[tune] no trial runs and none can start, but the experiment is not done");
    over_ = true;
    return false;
  }
  if (!start) {
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
    return true;
  }
  if (options_.trial_name && start->attempt == 0) name(*start);
  Job job;
  job.start = *std::move(start);
  job.directory = options_.directory / job.start.name;
  job.begun = now();
  if (job.start.iterations > 0)
    job.time_before = number_at(experiment_.trial(job.start.trial).last_result, "time_total_s").value_or(0);
  running_.insert(&job);
  call(job, [](Callback& callback, const TrialInfo& trial) { callback.on_trial_start(trial); });
  lock.unlock();
  Outcome outcome;
  try {
    outcome = run_trial(job);
  } catch (...) {
    lock.lock();
    running_.erase(&job);
    throw;
  }
  lock.lock();
  running_.erase(&job);
  ended(job, outcome);
  if (waiting_ > 0) changed_.notify_all();
  return true;
}

void TrialLoop::name(Start& start) {
  std::string name =
      options_.trial_name({start.trial, start.id, start.name, options_.directory / start.name, start.config});
  std::error_code ignored;
  if (!names_.insert(name).second || fs::exists(options_.directory / name, ignored)) name += "_" + start.id;
  experiment_.set_name(start.trial, name);
  start.name = std::move(name);
}

TrialInfo TrialLoop::info_of(const Job& job) const {
  return {job.start.trial, job.start.id, job.start.name, job.directory, job.start.config};
}

template <class Call>
void TrialLoop::call(const Job& job, const Call& call) {
  if (options_.callbacks.empty()) return;
  const TrialInfo trial = info_of(job);
  for (Callback* each : options_.callbacks) call(*each, trial);
}

/// Whether a stopper ends the trial. Each sees every report.
bool TrialLoop::is_stopped(const Job& job, const Value& result) {
  bool stopped = false;
  for (const auto& each : options_.stoppers) stopped = each->on_result(job.start.trial, result) || stopped;
  for (const auto& each : options_.stop_functions) stopped = each(job.start.id, result) || stopped;
  return stopped;
}

bool TrialLoop::report(Job& job, const Value& result, const std::string& checkpoint, bool last) {
  const std::lock_guard lock(mutex_);
  try {
    return record(job, result, checkpoint, last);
  } catch (...) {
    // The experiment cannot go on like this; the function is not to blame and must not see it.
    if (!problem_) problem_ = std::current_exception();
    interrupt();
    return true;
  }
}

bool TrialLoop::record(Job& job, const Value& result, const std::string& checkpoint, bool last) {
  if (problem_) return true;
  call(job, [&](Callback& callback, const TrialInfo& trial) { callback.on_trial_result(trial, result); });
  last = is_stopped(job, result) || last;
  const Decision decision = experiment_.on_report(job.start.trial, result, checkpoint, last);
  if (decision.kind != Decision::Kind::go_on) job.ending = true;
  if (decision.kind == Decision::Kind::stop) job.stopped = true;
  if (!checkpoint.empty()) saved(job, checkpoint, result);
  const double elapsed = options_.stoppers.empty() ? 0 : Seconds(now() - begun_).count();
  if (std::ranges::any_of(options_.stoppers, [&](const auto& each) { return each->stop_all(elapsed); })) {
    experiment_.stop();
    for (Job* other : running_) {
      other->ending = true;
      if (other->tell_ending) other->tell_ending();
    }
  }
  return job.ending || interrupted_;
}

void TrialLoop::on_checkpoint(Job& job, const std::string& checkpoint, std::int64_t iteration, bool replaces) {
  const std::lock_guard lock(mutex_);
  try {
    if (problem_) return;
    experiment_.on_checkpoint(job.start.trial, checkpoint, iteration);
    tell_saved(job, checkpoint);
    if (replaces) experiment_.sync();
  } catch (...) {
    problem_ = std::current_exception();
    interrupt();
  }
}

void TrialLoop::set_kill(Job& job, std::function<void()> kill, std::function<void()> tell_ending) {
  const std::lock_guard lock(mutex_);
  if (job.ending && tell_ending) tell_ending();
  if ((job.killed || interrupted_) && kill) kill();
  job.kill = std::move(kill);
  job.tell_ending = std::move(tell_ending);
}

void TrialLoop::tell_saved(const Job& job, const fs::path& checkpoint) {
  call(job, [&](Callback& callback, const TrialInfo& trial) {
    callback.on_trial_save(trial, Checkpoint::from_directory(checkpoint));
  });
}

/// Finds the checkpoints that CheckpointConfig does not keep.
void TrialLoop::saved(const Job& job, const fs::path& checkpoint, const Value& result) {
  tell_saved(job, checkpoint);
  const auto& rule = options_.checkpoint;
  if (!rule.num_to_keep) return;
  const store::RunDirectory trial(job.directory);
  const auto [entry, is_new] = kept_.try_emplace(job.start.trial);
  auto& kept = entry->second;
  if (is_new) {  // there may be some of earlier attempts
    for (const auto& each : store::list_checkpoints(trial, rule.score_attribute))
      kept.push_back({.seq = each.seq, .score = each.score});
  } else {
    kept.push_back({.seq = seq_of(checkpoint).value(), .score = {}});
    if (!rule.score_attribute.empty())
      kept.back().score = store::score_of(Checkpoint::from_directory(checkpoint), result, rule.score_attribute);
  }
  const auto donors = experiment_.donors();
  if (std::ranges::find(donors, job.start.trial) != donors.end()) return;
  const auto order = rule.score_order == "min" ? store::ScoreOrder::min : store::ScoreOrder::max;
  for (const int seq : store::decide_retention(kept, std::max(1, *rule.num_to_keep), order).remove) {
    unneeded_.push_back(trial.checkpoint_path(seq));
    std::erase_if(kept, [&](const auto& each) { return each.seq == seq; });
  }
  if (now() > next_removal_) remove_unneeded();
}

/// A trial that is killed now must find the checkpoint that the database names.
void TrialLoop::remove_unneeded() {
  experiment_.sync();
  if (unneeded_.empty()) return;
  const auto listed = experiment_.checkpoints();
  const std::set<fs::path> needed(listed.begin(), listed.end());
  std::erase_if(unneeded_, [&](const fs::path& path) {
    if (needed.contains(path)) return false;
    store::RunDirectory(path.parent_path()).remove_checkpoint(seq_of(path).value());
    return true;
  });
  next_removal_ = now() + kBetweenRemovals;
}

void TrialLoop::ended(Job& job, const Outcome& outcome) {
  if (problem_) return;
  if (outcome.interrupted) return interrupt();
  if (outcome.last_report && !job.ending) record(job, *outcome.last_report, "", decides_);
  const std::string error = job.killed ? "" : outcome.error;
  const bool again = experiment_.on_ended(job.start.trial, error);
  if (!again) {
    kept_.erase(job.start.trial);
    call(job, [&](Callback& callback, const TrialInfo& trial) {
      error.empty() ? callback.on_trial_complete(trial) : callback.on_trial_error(trial, error);
    });
  }
  if (error.empty()) return;
  console_.warning("trial " + job.start.name + " failed" + (again ? ", it is tried again: " : ": ") +
                   error.substr(0, error.find('\n')));
  if (!again && experiment_.settings().fail_fast) stop_all();
}

/// Running trials end as if they were done.
void TrialLoop::stop_all() {
  experiment_.stop();
  for (Job* job : running_) {
    job->ending = job->killed = true;
    if (job->kill) job->kill();
  }
}

/// Running trials end and can be continued.
void TrialLoop::interrupt() {
  interrupted_ = true;
  for (Job* job : running_)
    if (job->kill) job->kill();
  changed_.notify_all();
}

void TrialLoop::show(bool at_end) {
  if (options_.verbose <= 0) return;  // finding the best reads all trials
  const auto& settings = experiment_.settings();
  const auto failed = experiment_.count(TrialState::error);
  std::string text =
      std::to_string(experiment_.size()) + " trials in " + human_duration(Seconds(now() - begun_).count());
  text += ": " + std::to_string(experiment_.count(TrialState::terminated)) + " ended, " + std::to_string(failed) +
          " failed, " + std::to_string(running_.size()) + " running";
  if (at_end && !settings.metrics.empty()) {
    if (const auto best = experiment_.best(settings.metrics[0], settings.modes[0], "last")) {
      const Trial trial = experiment_.trial(*best);
      text += "; best " + settings.metrics[0] + " " + to_json(*find_path(trial.last_result, settings.metrics[0])) +
              " (" + trial.name + ")";
    }
  }
  console_.line("lockstep: " + text + (at_end ? "; results in " + options_.directory.string() : ""));
}

bool tidy(const Job& job) {
  std::error_code ignored;
  if (!fs::exists(job.directory, ignored)) return false;
  if (job.start.checkpoint.empty()) {
    sys::files().remove_tree(job.directory);
    return false;
  }
  const fs::path from = job.start.checkpoint;
  if (from.parent_path() != job.directory) return false;
  store::RunDirectory trial(job.directory);
  trial.remove_partials();
  for (const int seq : trial.checkpoints())
    if (seq > seq_of(from).value_or(seq)) trial.remove_checkpoint(seq);
  return true;
}

}  // namespace lockstep::tune
