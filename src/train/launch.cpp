#include "train/launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/ids.h"
#include "base/text.h"
#include "driver/console.h"
#include "store/run_directory.h"
#include "sys/files.h"
#include "train/driven_run.h"
#include "train/stop_listener.h"

namespace lockstep::train {
namespace {

/// Makes the directory of a run with a default name. If the name is taken, it adds a number, so that two runs that
/// start in the same second get two directories, also in different processes.
void claim_directory(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  sys::Files& files = sys::files();
  const auto is_taken = [&] { return files.info(plan.directory(), false).kind != sys::FileKind::none; };
  const std::string base = run.name;
  for (int n = 2; is_taken() || !files.make_directory(plan.directory()); ++n) run.name = base + "_" + std::to_string(n);
}

/// Throws StorageError that names storage_path if no run can be created there.
void prepare_storage(const std::filesystem::path& path) {
  const std::string advice =
      "; choose a directory that you can write to: RunConfig(storage_path=...), or LOCKSTEP_STORAGE_PATH in the "
      "environment";
  try {
    sys::files().make_directories(path);
  } catch (const StorageError& error) {
    throw StorageError("[storage] storage_path " + in_quotes(path.native()) + " cannot be used: " + error.what() +
                       advice);
  }
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw StorageError("[storage] storage_path " + in_quotes(path.native()) +
                       " cannot be written: " + std::generic_category().message(errno) + advice);
}

/// Fills in the plan. Throws if it can never run.
void check(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  if (run.storage_path.empty()) run.storage_path = store::default_storage_path();
  run.storage_path = std::filesystem::absolute(run.storage_path).lexically_normal();
  if (!plan.group.record) run.checkpoint.num_to_keep = 0;
  const bool named = !run.name.empty();
  if (!named) run.name = plan.trainer + "_" + date_string(wall_now());
  validate(plan.options);
  const bool holds_run = store::RunDirectory(plan.directory()).exists();
  if (plan.restore && !holds_run)
    throw ConfigError("[restore] " + plan.directory().string() +
                      " holds no run; give the path that result.path or the error message shows");
  if (plan.group.record && !plan.restore && named && holds_run)
    throw ConfigError("[trainer] " + plan.directory().string() +
                      " already holds a run; choose another RunConfig name, or continue it with " + plan.trainer +
                      ".restore(" + in_quotes(plan.directory().string()) + ")");
  const bool has_hooks = plan.backend.needs && !plan.backend.needs->backend_cls.empty();
  if (plan.backend.replaces_workers() && (run.checkpoint.keep_all_ranks || plan.group.keep_workers || has_hooks))
    throw ConfigError(
        "[trainer] workers that are replaced one by one do not go with keep_all_ranks, whose checkpoints need every "
        "rank's report, nor with a backend_cls, whose hooks call all workers, nor with workers that stay between runs");
  if (plan.backend.service) plan.backend.service->check(plan.options.scaling.num_workers);
}

/// Waits for the resources of the run. Returns nothing if it was interrupted or stopped meanwhile.
std::optional<Lease> lease_resources(const PreparedRun& prepared, std::uint64_t driven, int stopped) {
  const driver::RunPlan& plan = prepared.plan;
  ResourcePool::Request request;
  request.run = plan.options.run.name;
  request.scaling = plan.options.scaling;
  request.driven = driven;
  request.within = prepared.within;
  request.wait = plan.options.run.wait_for_resources;
  request.interrupts.push_back(stopped);
  if (plan.wiring.signals != nullptr) request.interrupts.push_back(plan.wiring.signals->fd());
  if (plan.wiring.control != nullptr) request.interrupts.push_back(plan.wiring.control->fd());
  request.say = [&](const std::string& text) {
    driver::Console(plan.options.run.verbose, "none", driver::Screen::of_process()).line("lockstep: " + text);
  };
  return process_resources().acquire(request);
}

/// The outcome of a run that was ended while it waited for resources.
driver::RunOutcome not_begun(const PreparedRun& prepared) {
  const driver::RunPlan& plan = prepared.plan;
  abandon(prepared);
  driver::RunOutcome outcome;
  if (plan.restore) outcome.result = Result::from_path(plan.directory());  // what the run has so far
  outcome.result.error.clear();
  outcome.result.path = plan.directory();
  outcome.result.config = plan.options.config;
  outcome.result.trainer = plan.trainer;
  outcome.signal = plan.wiring.signals != nullptr ? plan.wiring.signals->take() : 0;
  outcome.result.state = outcome.signal == 0 ? "stopped" : "interrupted";
  return outcome;
}

}  // namespace

PreparedRun prepare(driver::RunPlan plan) {
  const bool has_name = !plan.options.run.name.empty();
  check(plan);
  process_resources().check(plan.options.scaling);
  if (plan.group.record && !plan.restore) prepare_storage(plan.options.run.storage_path);
  const bool claims = !has_name && plan.group.record;
  if (claims) claim_directory(plan);
  DirectoryClaim claim = plan.group.record ? DirectoryClaim(plan.directory()) : DirectoryClaim();
  return {std::move(plan), claims, std::move(claim), runs_of_this_thread()};
}

void abandon(const PreparedRun& prepared) {
  std::error_code ignored;
  if (prepared.made_directory) std::filesystem::remove(prepared.plan.directory(), ignored);
}

driver::RunOutcome run(PreparedRun prepared, AgentSlot* agent) {
  const DrivenRun driven(prepared.within);
  const auto lease = [&](int stopped) {
    try {
      return lease_resources(prepared, driven.id(), stopped);
    } catch (const Error&) {
      abandon(prepared);
      throw;
    }
  };
  std::optional<StopListener> listener;
  if (prepared.plan.group.record && prepared.plan.wiring.signals != nullptr) {
    auto& callbacks = prepared.plan.options.run.callbacks;
    callbacks.insert(callbacks.begin(), &listener.emplace(*prepared.plan.wiring.signals));
  }
  AgentSlot own;
  auto outcome = (agent != nullptr ? *agent : own).run(prepared.plan, driven.id(), lease);
  return outcome ? *std::move(outcome) : not_begun(prepared);
}

}  // namespace lockstep::train
