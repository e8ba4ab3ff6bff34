#pragma once

#include <chrono>
#include <functional>
#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// What Session::report throws when the run ends early, so that the function ends. Lockstep catches it; no error.
struct StopTraining {};

/// What a training function sees of the run: its place among the workers, its configuration, where to resume, and where
/// to report. One per worker process, made by Lockstep. `report` may be called from one thread at a time; the rest from
/// any thread.
class Session {
 public:
  virtual ~Session() = default;

  virtual int world_rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;
  virtual int node_rank() const = 0;
  virtual int attempt() const = 0;
  virtual const Value& config() const = 0;

  /// The run's name, its one trial's name and id, and the run directory.
  virtual const std::string& experiment_name() const = 0;
  virtual const std::string& trial_name() const = 0;
  virtual const std::string& trial_id() const = 0;
  virtual const std::string& trial_dir() const = 0;

  /// What this attempt resumes from; nothing on a fresh start. After this rank has reported a checkpoint: the newest
  /// committed one (waits for its own to be durable).
  virtual std::optional<Checkpoint> checkpoint() = 0;

  /// Hands metrics, and maybe a checkpoint, to the driver. Metrics go into a bounded queue and the call returns; it
  /// waits only while that queue is full. A checkpoint's contents are copied before the call returns, and written by a
  /// thread. Rank 0's metrics are the run's; without keep_all_ranks other ranks' checkpoints are dropped. Throws
  /// ConfigError for metrics that take more than RunConfig::max_report_size, StorageError when an earlier checkpoint
  /// could not be written, and StopTraining after the last report of a run that ends early, unless the function asks
  /// should_stop(). Arrays are reported as lockstep::Array (array.h).
  virtual void report(const Value& metrics, const std::optional<Checkpoint>& checkpoint = std::nullopt) = 0;

  /// Waits until every rank has called it; throws TimeoutError naming the ranks that are missing.
  virtual void barrier(std::chrono::duration<double> timeout = std::chrono::minutes(30)) = 0;
  /// Gives every rank what rank 0 passed. Waits and fails as barrier() does.
  virtual Bytes broadcast_from_rank_zero(Bytes bytes,
                                         std::chrono::duration<double> timeout = std::chrono::minutes(30)) = 0;

  /// Asks for the end of the run, on all ranks after the same report: the next of this rank, or a later one where
  /// another rank is ahead.
  virtual void request_stop() = 0;
  /// Whether the run ends early and this rank has made its last report: true on every rank from the same report on. A
  /// function that asks has to end by itself; it may still report.
  virtual bool should_stop() = 0;

  /// True once the run is being stopped (Ctrl-C): return soon.
  virtual bool stopping() const = 0;
};

}  // namespace lockstep
