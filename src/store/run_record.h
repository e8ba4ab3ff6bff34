#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::store {

/// One start of all workers of a run.
struct AttemptRecord {
  int number = 0;
  double started = 0, ended = 0;  ///< seconds since 1970; ended is 0 while it runs
  int world_size = 1;
  std::vector<std::string> nodes;  ///< names of the nodes that its workers are on
  /// running, finished, failed, interrupted, stopped, preempted; died: its driver was killed; resized: an elastic run
  /// went on with more workers
  std::string outcome = "running";
};

/// The process that drives a run, or drove it.
struct DriverProcess {
  int pid = 0;                    ///< 0: unknown
  std::uint64_t start_ticks = 0;  ///< identifies the process together with the pid; 0: unknown
  std::string hostname;

  /// The calling process.
  static DriverProcess current();
};

/// The contents of run.json: the settings and the state of a run, for people, the command line and restore(). Always
/// replaced as a whole, by a rename.
struct RunRecord {
  std::string name;
  std::string state = "running";  ///< running, finished, failed, interrupted, stopped, preempted
  std::string trainer;
  int num_workers = 1;                            ///< of an elastic run the most
  int attempt = 0;                                ///< the latest
  double created = 0, updated = 0, finished = 0;  ///< seconds since 1970; 0: not yet
  std::int64_t training_iteration = 0;
  double time_total_s = 0;
  int next_seq = 0;
  int checkpoints_skipped = 0;  ///< with when_busy = "skip"
  bool validates = false;       ///< checkpoints that ask for it are checked
  std::string trial_id, experiment_id;
  std::string function_sha256;       ///< of function.pkl; empty: there is none
  std::string function_sha256_next;  ///< of the file that is about to replace it
  DriverProcess driver;
  Value metrics = Value::object();      ///< rank 0's last report
  Value config_run = Value::object();   ///< scaling, failure and checkpoint settings
  Value metadata = Value::object();     ///< given by the user
  std::vector<AttemptRecord> attempts;  ///< without those that an earlier version of Lockstep made
  std::vector<Failure> failures;        ///< of all attempts
  std::string error;
  std::vector<std::string> warnings;  ///< shown at every `verbose`

  /// Ends the running attempt, if there is one, and adds a new one. Times are in seconds since 1970.
  void begin_attempt(int number, int world_size, std::vector<std::string> nodes, double time);
  /// Ends the running attempt, if there is one.
  void end_attempt(const std::string& outcome, double time);
  /// The sizes of all attempts.
  std::vector<int> world_sizes() const;
  /// Enters the calling process as the driver, and the time of the update.
  void sign(double time);

  Value to_value() const;
  /// Missing fields keep their defaults. A field of another type throws StorageError; with `problem` it also keeps its
  /// default, and the first such field is named there. Throws StorageError if `value` is not an object.
  static RunRecord from_value(const Value& value, std::string* problem = nullptr);
};

/// For a run whose driver was killed when nothing was left to do: its record says that it has finished. `metrics` is
/// its last report. Does nothing if there is no record, or if it says how the run ended after that report: the record
/// of a trial says how it ended before a pause or a failure, until it has gone on for a while.
void finish_record(const std::filesystem::path& run, const Value& metrics, double time);

}  // namespace lockstep::store
