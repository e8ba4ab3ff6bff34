#pragma once

#include <chrono>
#include <filesystem>
#include <lockstep/checkpoint.h>
#include <lockstep/value.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Callback;

/// How many workers, and what each of them gets.
struct ScalingConfig {
  int num_workers = 1;
  bool use_gpu = false;                                  ///< one GPU a worker, unless resources_per_worker says more
  std::map<std::string, double> resources_per_worker{};  ///< "CPU", "GPU" or the user's own; never oversubscribed
  std::string placement_strategy = "PACK";               ///< PACK, SPREAD, STRICT_PACK or STRICT_SPREAD
};

/// How often a run may start again after a failure.
struct FailureConfig {
  int max_failures = 0;  ///< -1: for ever
};

/// Which checkpoints stay on disk.
struct CheckpointConfig {
  std::optional<int> num_to_keep{};  ///< nothing: all; 0: in memory only
  std::string score_attribute{};     ///< empty: later is better
  std::string score_order = "max";   ///< "max" or "min"
  bool keep_all_ranks = false;       ///< merge the parts of all ranks (sharded models)
};

/// One run: its place on disk and its policies.
struct RunConfig {
  std::string name{};                    ///< empty: <Trainer>_<Y-m-d_H-M-S>
  std::filesystem::path storage_path{};  ///< empty: ~/lockstep_results
  FailureConfig failure{};
  CheckpointConfig checkpoint{};
  std::vector<Callback*> callbacks{};                           ///< borrowed for the length of fit()
  int verbose = 1;                                              ///< 0: silent; 1, 2, 3: progress and output
  std::string log_to_console = "rank0";                         ///< whose output is shown: "rank0", "all" or "none"
  std::optional<std::chrono::duration<double>> hang_timeout{};  ///< no progress for so long is a hang
  std::chrono::duration<double> heartbeat_timeout{10.0};        ///< no heartbeat for so long is a hang
  int max_report_size = 16'000'000;                             ///< most bytes of metrics in one report, up to 1 GiB
  std::map<std::string, double> stop{};  ///< the run ends after a report of rank 0 with one of these metrics so great
};

/// All that a trainer takes besides its function.
struct TrainerOptions {
  Value config = Value::object();  ///< what Session::config() gives
  ScalingConfig scaling{};
  RunConfig run{};
  std::optional<Checkpoint> resume_from{};
};

/// Throws ConfigError that names the field, its value and what it may be.
void validate(const TrainerOptions& options);

}  // namespace lockstep
