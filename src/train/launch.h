#pragma once

#include <lockstep/config.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "driver/run_loop.h"
#include "driver/run_plan.h"
#include "engine/local/local_engine.h"
#include "sys/descriptor.h"

namespace lockstep::train {

/// An agent that stays between runs, with its fork server and the workers that a run keeps. Started by the first run,
/// and again when it has died. Any thread may use it: one run at a time, another waits for it.
class AgentSlot {
 public:
  AgentSlot() = default;
  ~AgentSlot();
  AgentSlot(const AgentSlot&) = delete;
  AgentSlot& operator=(const AgentSlot&) = delete;

  /// Runs a plan that is complete. Throws ConfigError when called from a callback of a run on this agent.
  driver::RunOutcome run(const driver::RunPlan& plan);
  /// How many workers a run has kept that still live, and how others ended, in words.
  std::pair<int, std::string> kept();
  /// Ends the agent and all its workers, also in the middle of a run, which fails then. Any thread.
  void stop();
  /// Whether the calling thread is in a run on this agent: a callback's call.
  bool in_run() const { return runner_ == std::this_thread::get_id(); }

 private:
  int connect();
  void drop();

  std::mutex mutex_;                       // held for the length of a run
  std::atomic<std::thread::id> runner_{};  ///< the thread that holds it
  std::atomic<int> agent_pid_ = 0;
  std::unique_ptr<engine::LocalEngine> engine_;
  sys::Descriptor socket_;
  int owner_ = 0;
};

/// Completes a plan (name, directory, what each rank gets) and runs it on `agent`, or on the one that the process keeps
/// for all. Throws ConfigError before anything is started; see driver::run for the rest.
driver::RunOutcome launch(driver::RunPlan plan, AgentSlot* agent = nullptr);

/// Whether `path` holds a run.
bool can_restore(const std::filesystem::path& path);

/// A run's function.pkl, and the SHA-256 that run.json says it has, in hexadecimal digits: none in runs of old, two
/// while it was being replaced.
struct SavedFunction {
  Bytes bytes;
  std::vector<std::string> sha256;
};

/// Throws StorageError when the run directory or one of the files is not this user's alone, or there is none.
SavedFunction read_function(const std::filesystem::path& path);

/// The options with which the run at `path` was started, as far as run.json and params.json tell. Throws ConfigError
/// when there is no run.
void read_settings(const std::filesystem::path& path, TrainerOptions& options);

}  // namespace lockstep::train
