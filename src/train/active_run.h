#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <lockstep/run_handle.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "driver/run_control.h"
#include "sys/descriptor.h"
#include "sys/signals.h"
#include "train/launch.h"

namespace lockstep::train {

/// A run of this process, from its preparation to its end. fit() and RunHandle are made of it, in C++ and in Python.
///
/// One thread prepares it and one thread runs it. Any thread may call the rest, once it is prepared. A fork of the
/// process sees the state that it had then; it cannot stop the run or wait for it.
class ActiveRun {
 public:
  struct Options {
    /// What a signal does besides interrupting the run.
    sys::SignalWatch::Then then = sys::SignalWatch::Then::later;
    AgentSlot* agent = nullptr;  ///< borrowed; null: the agent of the process
    bool observed = true;        ///< false: nobody asks for its state, metrics and reports
  };
  /// Called if a signal interrupts a wait. What it throws ends the wait.
  using OnSignal = std::function<void()>;

  /// From now on, signals are for the run.
  explicit ActiveRun(const Options& options);
  ~ActiveRun();
  ActiveRun(const ActiveRun&) = delete;
  ActiveRun& operator=(const ActiveRun&) = delete;

  /// See train::prepare().
  void prepare(driver::RunPlan plan);
  /// Makes it a run that is over, instead of preparing it.
  void set_finished(Result result);
  /// Runs it to the end in the calling thread. Does nothing if it is over. Throws nothing: wait() does.
  void run();

  /// Waits for the end. Throws TimeoutError, or the error of a run that has no outcome. Here and in next(): throws
  /// ConfigError if the end cannot come, that is, in callbacks of this run and in a fork.
  const driver::RunOutcome& wait(std::optional<Seconds> timeout, const OnSignal& on_signal = {}) const;
  /// Waits for the next report that was not taken yet. Returns nothing if the run is over.
  std::optional<Value> next(const OnSignal& on_signal = {});
  /// The number of reports that were dropped because nobody took them in time.
  long dropped() const { return dropped_; }

  void stop(bool checkpoint);
  bool is_over() const { return over_; }
  /// "waiting", "running" or the state of the result.
  std::string state() const;
  /// Rank 0's last report.
  Value metrics() const;
  std::string name() const { return path_.filename(); }
  const std::filesystem::path& path() const { return path_; }
  driver::RunControl& control() { return control_; }

 private:
  class Listener;

  void note_report(const Value& metrics);
  void end();
  void check_can_wait(const char* what) const;

  const Options options_;
  const int owner_;
  driver::RunControl control_;
  std::unique_ptr<sys::SignalWatch> signals_;
  std::optional<PreparedRun> prepared_;
  std::filesystem::path path_;
  std::atomic<std::thread::id> runner_{};  ///< the thread in run()
  std::atomic<bool> begun_ = false;

  std::atomic<bool> over_ = false;  ///< then the next two do not change any more
  std::optional<driver::RunOutcome> outcome_;
  std::exception_ptr error_;  ///< if there is no outcome
  sys::Descriptor ended_;     ///< readable when it is over

  mutable std::mutex mutex_;  // guards those below
  Value last_ = Value::object();
  std::deque<Value> reports_;
  sys::Descriptor news_;  ///< readable while there are reports, and when it is over
  std::atomic<long> dropped_ = 0;
};

/// Runs it in a new thread, which lives until the run is over. If the program exits before that, the run is stopped.
void run_in_background(const std::shared_ptr<ActiveRun>& run);

}  // namespace lockstep::train

namespace lockstep {

/// Has no name outside of RunHandle: a public namespace `train` would clash with users' functions of that name.
class RunHandle::Run : public train::ActiveRun {
 public:
  using ActiveRun::ActiveRun;
};

}  // namespace lockstep
