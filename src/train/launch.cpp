#include "train/launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/ids.h"
#include "base/text.h"
#include "driver/console.h"
#include "driver/preemption.h"
#include "store/address.h"
#include "store/fetch.h"
#include "store/object_store.h"
#include "store/remove_run.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "sys/files.h"
#include "train/driven_run.h"
#include "train/nodes.h"
#include "train/requeue.h"
#include "train/run_mirror.h"
#include "train/stop_listener.h"

namespace lockstep::train {
namespace {

/// Makes the directory of a run with a default name. If the name is taken, it adds a number, so that two runs that
/// start in the same second get two directories, also in different processes.
void claim_directory(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  sys::Files& files = sys::files();
  const auto is_taken = [&] {
    if (files.info(plan.directory(), false).kind != sys::FileKind::none) return true;
    const auto remote = store::address_of(plan.directory());
    return remote && store::remote_run_exists(*remote);
  };
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

/// Throws unless the store can be used and has no run of that name. A copy of one that the store had is dropped.
void check_remote(const store::Address& remote, const driver::RunPlan& plan, bool named) {
  store::ObjectStore(store::kQuestionPatience).check(*remote.parent());
  if (!named) return;
  if (store::remote_run_exists(remote))
    throw ConfigError("[trainer] " + remote.text() +
                      " already holds a run; choose another RunConfig name, or continue it with " + plan.trainer +
                      ".restore(" + in_quotes(remote.text()) + ")");
  if (sys::files().info(plan.directory() / store::kMirrored).kind == sys::FileKind::file)
    store::remove_run(plan.directory());
}

/// Fills in the plan. Throws if it can never run.
void check(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  if (run.storage_path.empty()) run.storage_path = store::default_storage_path();
  run.storage_path = std::filesystem::absolute(store::local_path(run.storage_path)).lexically_normal();
  if (!plan.group.record) run.checkpoint.num_to_keep = 0;
  const bool named = !run.name.empty();
  if (!named) run.name = plan.trainer + "_" + date_string(wall_now());
  validate(plan.options);
  const auto remote = plan.group.record ? store::address_of(plan.directory()) : std::nullopt;
  if (remote && !plan.restore) check_remote(*remote, plan, named);
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
  const WorkerCount& workers = plan.options.scaling.num_workers;
  if (workers.is_elastic() && (plan.backend.service || plan.group.keep_workers))
    throw ConfigError("[trainer] num_workers is (" + std::to_string(workers.least) + ", " +
                      std::to_string(workers.most) + "); it must be an int " +
                      (plan.group.keep_workers ? "for workers that stay between runs"
                                               : "with Horovod, whose own elastic jobs have a minimum: "
                                                 "HorovodConfig(elastic=True, min_workers=" +
                                                     std::to_string(workers.least) + ")"));
  if (plan.backend.service) plan.backend.service->check(workers.most);
}

/// The directories from which workers import must be on all nodes.
void name_paths(driver::ProgramSpec& program) {
  std::error_code ignored;
  for (const auto& path : program.python_path)
    if (std::filesystem::exists(path, ignored)) program.fork_server.paths.push_back(path);
}

/// What ends the waits of a run that has not begun, and where it tells that it waits.
ProcessAgents::Watcher watcher_of(const driver::RunPlan& plan) {
  ProcessAgents::Watcher watcher;
  if (plan.wiring.signals != nullptr) watcher.interrupts.push_back(plan.wiring.signals->fd());
  if (plan.wiring.control != nullptr) watcher.interrupts.push_back(plan.wiring.control->fd());
  if (const ScalingConfig& scaling = plan.options.scaling; scaling.num_workers.is_elastic())
    watcher.enough = [scaling](const auto& nodes) { return driver::place_if_it_fits(scaling, nodes, {}).has_value(); };
  watcher.say = [verbose = plan.options.run.verbose](const std::string& text) {
    driver::Console(verbose, "none", driver::Screen::of_process()).line("lockstep: " + text);
  };
  return watcher;
}

/// Waits for the resources of the run. Returns nothing if it was interrupted or stopped meanwhile.
std::optional<Lease> lease_resources(const PreparedRun& prepared, ResourcePool& resources, std::uint64_t driven,
                                     int stopped) {
  const driver::RunPlan& plan = prepared.plan;
  ResourcePool::Request request;
  request.run = plan.options.run.name;
  request.scaling = plan.options.scaling;
  request.driven = driven;
  request.within = prepared.within;
  request.wait = plan.options.run.wait_for_resources;
  const auto watcher = watcher_of(plan);
  request.interrupts = watcher.interrupts;
  request.interrupts.push_back(stopped);
  request.say = watcher.say;
  return resources.acquire(request);
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
  if (driver::is_preemption_notice(outcome.signal, plan.options.run)) {
    plan.wiring.signals->forgive(outcome.signal);
    outcome.result.state = "preempted";
  }
  return outcome;
}

/// Waits until the store has everything. If it cannot, the run has failed.
void finish_mirror(RunMirror& mirror, driver::RunOutcome& outcome) {
  try {
    mirror.finish();
  } catch (const StorageError& error) {
    Result& result = outcome.result;
    Failure failure;
    failure.kind = FailureKind::storage;
    failure.message = error.what();
    failure.time = unix_seconds(wall_now());
    result.failures.push_back(failure);
    result.error = result.error.empty() ? error.what() : result.error + "\n" + error.what();
    result.state = "failed";
    store::RunDirectory directory(result.path);
    store::RunRecord record = store::RunRecord::from_value(directory.read_run_json());
    record.state = result.state;
    record.error = result.error;
    record.failures = result.failures;
    directory.write_run_json(record.to_value());
  }
}

}  // namespace

PreparedRun prepare(driver::RunPlan plan) {
  const bool has_name = !plan.options.run.name.empty();
  check(plan);
  const EngineNodes nodes = nodes_of(plan.options.run.engine);
  if (nodes.is_local)
    nodes.resources.check(plan.options.scaling);
  else
    name_paths(plan.program);
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
  const EngineNodes nodes = agent != nullptr ? local_nodes() : nodes_of(prepared.plan.options.run.engine);
  const auto watcher = watcher_of(prepared.plan);
  const auto lease = [&](int stopped) -> std::optional<Lease> {
    try {
      if (!nodes.is_local) nodes.agents.start(watcher);  // only then its resources are known
      return lease_resources(prepared, nodes.resources, driven.id(), stopped);
    } catch (const engine::StartInterrupted&) {
      return std::nullopt;
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
  std::optional<RunMirror> mirror;
  if (const auto remote = store::address_of(prepared.plan.directory()); remote && prepared.plan.group.record) {
    mirror.emplace(*remote, prepared.plan.directory());
    prepared.plan.options.run.callbacks.push_back(&*mirror);
  }
  AgentSlot own(nodes.agents);
  auto ended = (agent != nullptr ? *agent : own).run(prepared.plan, driven.id(), lease, watcher);
  if (ended && mirror) finish_mirror(*mirror, *ended);
  driver::RunOutcome outcome = ended ? *std::move(ended) : not_begun(prepared);
  if (outcome.result.state == "preempted") requeue_slurm_job(outcome.signal);
  return outcome;
}

}  // namespace lockstep::train
