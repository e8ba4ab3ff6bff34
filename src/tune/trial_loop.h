#pragma once

#include <lockstep/config.h>
#include <lockstep/tune/callback.h>
#include <lockstep/tune/stoppers.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/console.h"
#include "store/retention.h"
#include "sys/descriptor.h"
#include "sys/signals.h"
#include "tune/experiment.h"
#include "tune/stopper.h"

namespace lockstep::tune {

/// A trial that runs. Its thread owns it.
struct Job {
  Start start;
  std::filesystem::path directory;    ///< of the trial; need not exist
  Instant begun{};                    ///< when this attempt was started
  double time_before = 0;             ///< seconds of earlier attempts that it goes on from
  std::atomic<bool> ending = false;   ///< its next report is the last, or the last one was
  std::atomic<bool> stopped = false;  ///< has done its part, however its function ends
  std::atomic<bool> killed = false;   ///< ended by the loop, not by a decision

  // Guarded by the loop's mutex.
  std::function<void()> kill = {};         ///< ends it from outside; empty: it ends with its next report
  std::function<void()> tell_ending = {};  ///< empty: it sees `ending`
};

/// Runs the trials of an experiment in threads: each takes the trial that the experiment chooses, runs it, and tells
/// how it ended. The experiment is used by one thread at a time, under a mutex.
class TrialLoop {
 public:
  struct Options {
    std::filesystem::path directory;  ///< the experiment's
    CheckpointConfig checkpoint{};    ///< which checkpoints that report() gets stay
    int verbose = 0;
    std::vector<Callback*> callbacks{};  ///< borrowed
    std::vector<std::unique_ptr<Stopper>> stoppers{};
    std::vector<Stop::Function> stop_functions{};
    std::function<std::string(const TrialInfo&)> trial_name{};
  };
  /// How a trial ended.
  struct Outcome {
    std::string error = {};                 ///< empty unless it failed
    std::optional<Value> last_report = {};  ///< one more report, the last
    bool interrupted = false;               ///< it goes on when the experiment is restored
  };
  using RunTrial = std::function<Outcome(Job&)>;

  /// `experiment` is borrowed.
  TrialLoop(Experiment& experiment, Options options);

  /// Shows the stoppers what is stored, in the order of the trials.
  void remember();
  /// Until no trial runs and none is to be started, with at most `most` at once. Returns early after a signal. Throws
  /// what the experiment throws: running trials can be continued then.
  void run(int most, sys::SignalWatch& signals, const RunTrial& run_trial);

  // For the threads of trials.

  /// A trial reported; `checkpoint` is committed, or empty. `last`: it ends itself with this report. Returns whether it
  /// ends now.
  bool report(Job& job, const Value& result, const std::string& checkpoint, bool last = false);
  /// A checkpoint was committed after the trial's `iteration`-th report. `replaces`: older ones are removed when this
  /// returns, so it waits until the database has the new one.
  void on_checkpoint(Job& job, const std::string& checkpoint, std::int64_t iteration, bool replaces);
  /// How the trial is ended from outside, and how it is told that it is `ending`. Called at once if that is so already.
  void set_kill(Job& job, std::function<void()> kill, std::function<void()> tell_ending = {});
  /// A signal or an error ends the experiment; it can be continued.
  bool interrupted() const { return interrupted_; }
  const std::filesystem::path& directory() const { return options_.directory; }

 private:
  void work(const RunTrial& run_trial);
  bool start_one(std::unique_lock<std::mutex>& lock, const RunTrial& run_trial);
  void name(Start& start);
  TrialInfo info_of(const Job& job) const;
  bool is_stopped(const Job& job, const Value& result);
  template <class Call>
  void call(const Job& job, const Call& call);
  bool record(Job& job, const Value& result, const std::string& checkpoint, bool last);
  void tell_saved(const Job& job, const std::filesystem::path& checkpoint);
  void saved(const Job& job, const std::filesystem::path& checkpoint, const Value& result);
  void remove_unneeded();
  void ended(Job& job, const Outcome& outcome);
  void watch(sys::SignalWatch& signals);
  void stop_all();
  void interrupt();
  void show(bool at_end);

  Experiment& experiment_;
  const Options options_;
  const bool decides_;           ///< there is a scheduler, which must not pause a function that has returned
  std::set<std::string> names_;  ///< that trial_name gave
  const Instant begun_ = now();
  std::atomic<bool> interrupted_ = false;
  sys::Descriptor done_;  ///< readable when the threads are over

  std::mutex mutex_;  // guards what follows, and the experiment
  std::condition_variable changed_;
  std::set<Job*> running_;
  std::map<TrialNumber, std::vector<store::ScoredCheckpoint>> kept_;
  std::vector<std::filesystem::path> unneeded_;  ///< checkpoints to remove once the database has newer ones
  Instant next_removal_{};
  driver::Console console_;
  std::exception_ptr problem_;
  bool over_ = false;
  int waiting_ = 0;
};

/// Removes from a trial's directory what the experiment does not know, because the process was killed before it was
/// stored: the trial will do it again. Returns whether it goes on from a checkpoint of its own.
bool tidy(const Job& job);

}  // namespace lockstep::tune
