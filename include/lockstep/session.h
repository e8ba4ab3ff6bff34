#pragma once

#include <chrono>
#include <functional>
#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class DatasetShard;

/// Session::report throws this to end the function when the run ends early. Lockstep catches it; it is not an error.
struct StopTraining {};

/// The training function's view of the run: its rank, its configuration, the checkpoint to resume from, and report().
/// Lockstep creates one per worker process. `report` may be called from one thread at a time; everything else from any
/// thread.
class Session {
 public:
  virtual ~Session() = default;

  virtual int world_rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;
  virtual int node_rank() const = 0;
  /// The address by which the workers of all nodes reach the node of `rank`; the loopback on one machine. Whatever a
  /// rank serves to the others listens there. Throws ConfigError if there is no such rank.
  virtual const std::string& node_address(int rank) const = 0;
  virtual int attempt() const = 0;
  virtual const Value& config() const = 0;

  /// The run's name, its one trial's name and id, and the run directory.
  virtual const std::string& experiment_name() const = 0;
  virtual const std::string& trial_name() const = 0;
  virtual const std::string& trial_id() const = 0;
  virtual const std::string& trial_dir() const = 0;

  /// What this attempt resumes from; nothing on a fresh start. After this rank has reported a checkpoint: the newest
  /// committed one. The call then waits until the checkpoint of that report (rank 0's, or with keep_all_ranks that of
  /// all ranks) is committed.
  virtual std::optional<Checkpoint> checkpoint() = 0;

  /// Where a data set was when the checkpoint that this attempt resumes from was saved: what keep_position() gave then.
  virtual std::optional<Value> saved_position(const std::string& dataset) = 0;
  /// From now on, every checkpoint that rank 0 reports also holds `position()`, in a file of Lockstep's own. It is
  /// called by report(), in its thread.
  virtual void keep_position(const std::string& dataset, std::function<Value()> position) = 0;

  /// This rank's part of a data set that the trainer was given. Include <lockstep/data.h> and link Lockstep::data.
  /// Calls with one name give one shard; for one thread at a time. Throws ConfigError that lists the names if there is
  /// no such data set.
  DatasetShard dataset_shard(const std::string& name);
  /// What DataParallelTrainer::datasets() was given, for dataset_shard(): {"datasets": {NAME: PLAN}, "config": {...}}.
  virtual const Value& data_plan() const = 0;

  /// Sends metrics, and optionally a checkpoint, to the driver. Metrics go into a bounded queue and the call returns;
  /// it waits only while the queue is full. A checkpoint's contents are copied before the call returns, and the
  /// agent writes them. Rank 0's metrics are the run's; without keep_all_ranks, other ranks' checkpoints are dropped.
  /// Throws ConfigError if the metrics take more than RunConfig::max_report_size, StorageError if an earlier checkpoint
  /// could not be written, and StopTraining after the last report of a run that ends early, unless the function calls
  /// should_stop(). Report arrays as lockstep::Array (array.h); tensors of LibTorch as they are (torch.h).
  virtual void report(const Value& metrics, const std::optional<Checkpoint>& checkpoint = std::nullopt) = 0;

  /// Waits until every rank has called it. Throws TimeoutError that names the missing ranks.
  virtual void barrier(std::chrono::duration<double> timeout = std::chrono::minutes(30)) = 0;
  /// Returns rank 0's bytes on every rank. Waits and fails as barrier() does.
  virtual Bytes broadcast_from_rank_zero(Bytes bytes,
                                         std::chrono::duration<double> timeout = std::chrono::minutes(30)) = 0;

  /// Asks to end the run. All ranks end after the same report: this rank's next one, or a later one if another rank is
  /// ahead.
  virtual void request_stop() = 0;
  /// Whether the run ends early and this rank has made its last report. Becomes true on every rank after the same
  /// report. A function that calls it must end by itself; it may still report.
  virtual bool should_stop() = 0;

  /// True once the run is being stopped by a signal (Ctrl-C): return soon.
  virtual bool stopping() const = 0;

  /// True once the machine, or one of the run's, is about to be taken away (preemption): the next checkpoint that is
  /// reported is the last one. A hint; a function need not ask.
  virtual bool should_checkpoint() const { return false; }
  /// How long the run may still last: until its machine is taken away, or its Slurm job ends; nothing if that is not
  /// known.
  virtual std::optional<std::chrono::duration<double>> time_left() const { return std::nullopt; }

 private:
  std::map<std::string, std::shared_ptr<void>> shards_;  ///< that dataset_shard() gave
};

}  // namespace lockstep
