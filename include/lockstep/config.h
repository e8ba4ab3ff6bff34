#pragma once

#include <chrono>
#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/engine_config.h>
#include <lockstep/value.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Callback;

/// A number of workers, or for elastic runs from `least` to `most`: `.num_workers = 4`, `.num_workers = {2, 8}`.
struct WorkerCount {
  int least = 1, most = 1;

  constexpr WorkerCount(int count = 1) : least(count), most(count) {}  // NOLINT(google-explicit-constructor)
  constexpr WorkerCount(int least, int most) : least(least), most(most) {}

  constexpr bool is_elastic() const { return least != most; }
  bool operator==(const WorkerCount&) const = default;
};

/// How many workers, and what each of them gets.
struct ScalingConfig {
  WorkerCount num_workers = 1;
  bool use_gpu = false;  ///< one GPU per worker, unless resources_per_worker has another number
  std::map<std::string, double> resources_per_worker{};  ///< "CPU", "GPU" or the user's own; not given out twice
  std::string placement_strategy = "PACK";               ///< PACK, SPREAD, STRICT_PACK or STRICT_SPREAD
  std::chrono::duration<double> resize_interval{60.0};   ///< an elastic run grows at most this often

  bool operator==(const ScalingConfig&) const = default;
};

/// How often a run is retried after a failure.
struct FailureConfig {
  int max_failures = 0;              ///< -1: no limit
  bool count_node_failures = false;  ///< whether a node that is lost counts too

  bool operator==(const FailureConfig&) const = default;
};

/// Which checkpoints stay on disk.
struct CheckpointConfig {
  std::optional<int> num_to_keep{};  ///< nothing: all; 0: in memory only
  std::string score_attribute{};     ///< empty: later is better
  std::string score_order = "max";   ///< "max" or "min"
  bool keep_all_ranks = false;       ///< merge the parts of all ranks (sharded models)
  int persist_every = 1;             ///< every n-th goes to disk; the newest two others stay in memory
  std::string when_busy = "wait";  ///< a report that is faster than the disk waits, or "skip": the older one is dropped

  bool operator==(const CheckpointConfig&) const = default;
};

/// One run: its place on disk and its policies.
struct RunConfig {
  std::string name{};                    ///< empty: <Trainer>_<Y-m-d_H-M-S>
  std::filesystem::path storage_path{};  ///< empty: LOCKSTEP_STORAGE_PATH, or else ~/lockstep_results
  FailureConfig failure{};
  CheckpointConfig checkpoint{};
  std::vector<Callback*> callbacks{};                           ///< borrowed until the run is over
  int verbose = 1;                                              ///< 0: silent; 1, 2, 3: progress and output
  std::string log_to_console = "rank0";                         ///< whose output is shown: "rank0", "all" or "none"
  std::optional<std::chrono::duration<double>> hang_timeout{};  ///< no progress for this long counts as a hang
  std::chrono::duration<double> heartbeat_timeout{10.0};        ///< a worker without one for this long counts as dead
  int max_report_size = 16'000'000;  ///< at most this many bytes of metrics in one report; up to 1 GiB
  std::map<std::string, double>
      stop{};                    ///< ends the run after a report of rank 0 in which a metric has reached its value here
  std::string resume = "never";  ///< "auto": continue the run of that name if there is one; or the path of a run
  std::string preemption{};      ///< a file or a command that tells that the machine will be taken away; empty: signals
  std::chrono::duration<double> preemption_grace{30.0};  ///< how long after such a notice the run may last
  bool wait_for_resources = true;  ///< wait if other runs of the process hold them; false: throws EngineError
  EngineConfig engine{};           ///< on which nodes the workers are

  bool operator==(const RunConfig&) const = default;
};

/// The arguments of a trainer besides its function.
struct TrainerOptions {
  Value config = Value::object();  ///< what Session::config() gives
  ScalingConfig scaling{};
  RunConfig run{};
  std::optional<Checkpoint> resume_from{};
};

/// Throws ConfigError that names the field, its value and what it may be.
void validate(const TrainerOptions& options);

}  // namespace lockstep
