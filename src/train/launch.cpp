#include "train/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "driver/agent_link.h"
#include "driver/run_record.h"
#include "store/run_directory.h"
#include "sys/files.h"
#include "sys/node.h"
#include "sys/private_files.h"
#include "train/resources.h"

namespace lockstep::train {
namespace {

constexpr int kAnswerWithin = 5000;  // milliseconds

/// Names this thread as the runner for as long as it lives.
class Holder {
 public:
  explicit Holder(std::atomic<std::thread::id>& runner) : runner_(runner) { runner_ = std::this_thread::get_id(); }
  ~Holder() { runner_ = std::thread::id(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  std::atomic<std::thread::id>& runner_;
};

/// The one that this process keeps for all. Never destroyed: it ends when this process does, and a fork of this process
/// must not touch it.
AgentSlot& process_agent() {
  static auto* instance = new AgentSlot;
  return *instance;
}

/// Whether the other end is gone. An idle agent sends nothing.
bool is_closed(int socket) {
  char byte;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

/// Makes the directory of a run that has only a default name. Two runs in one second are two runs, in other processes
/// too.
void claim_directory(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  sys::Files& files = sys::files();
  const auto is_taken = [&] { return files.info(plan.directory(), false).kind != sys::FileKind::none; };
  const std::string base = run.name;
  for (int n = 2; is_taken() || !files.make_directory(plan.directory()); ++n) run.name = base + "_" + std::to_string(n);
}

/// Throws StorageError that calls the storage path by its name when no run can be made there.
void prepare_storage(const std::filesystem::path& path) {
  const std::string advice =
      "; choose a directory that you can write to: RunConfig(storage_path=...), or LOCKSTEP_STORAGE_PATH in the "
      "environment";
  try {
    sys::files().make_directories(path);
  } catch (const StorageError& error) {
    throw StorageError("[run] storage_path " + in_quotes(path.native()) + " cannot be used: " + error.what() + advice);
  }
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw StorageError("[run] storage_path " + in_quotes(path.native()) +
                       " cannot be written: " + std::generic_category().message(errno) + advice);
}

void complete(driver::RunPlan& plan) {
  RunConfig& run = plan.options.run;
  if (run.storage_path.empty()) run.storage_path = store::default_storage_path();
  run.storage_path = std::filesystem::absolute(run.storage_path).lexically_normal();
  if (!plan.record) run.checkpoint.num_to_keep = 0;
  const bool named = !run.name.empty();
  if (!named) run.name = plan.trainer + "_" + date_string(wall_now());
  validate(plan.options);
  if (plan.restore && !can_restore(plan.directory()))
    throw ConfigError("[restore] " + plan.directory().string() +
                      " holds no run; give the path that result.path or the error message shows");
  if (plan.record && !plan.restore && named && can_restore(plan.directory()))
    throw ConfigError("[run] " + plan.directory().string() +
                      " holds a run already; choose another RunConfig name, or go on with " + plan.trainer +
                      ".restore(" + in_quotes(plan.directory().string()) + ")");
  if (plan.replace_workers && (run.checkpoint.keep_all_ranks || plan.keep_workers))
    throw ConfigError(
        "[run] workers that are replaced one by one cannot be had together with keep_all_ranks, whose checkpoints need "
        "every rank's report, nor with workers that stay between runs");
  if (const auto rendezvous = plan.rendezvous_options()) {
    if (static_cast<int>(rendezvous->hosts.size()) != plan.options.scaling.num_workers)
      throw ConfigError("[run] the rendezvous has hosts for " + std::to_string(rendezvous->hosts.size()) +
                        " ranks, but there are " + std::to_string(plan.options.scaling.num_workers) + " workers");
    driver::Rendezvous::check(*rendezvous);
  }
  Assignment assignment = assign(plan.options.scaling, {sys::node_resources(), sys::gpu_ids()}, plan.program.env);
  plan.rank_env = std::move(assignment.rank_env);
  plan.notes = std::move(assignment.notes);
  if (plan.record && !plan.restore) prepare_storage(run.storage_path);
  if (!named && plan.record) claim_directory(plan);
}

void take_settings(const driver::RunRecord& record, TrainerOptions& options) {
  const Value& settings = record.config_run;
  options.scaling.num_workers = settings.value("num_workers", record.num_workers);
  options.scaling.use_gpu = settings.value("use_gpu", false);
  options.scaling.resources_per_worker = settings.value("resources_per_worker", std::map<std::string, double>());
  options.scaling.placement_strategy = settings.value("placement_strategy", std::string("PACK"));
  options.run.failure.max_failures = settings.value("max_failures", 0);
  options.run.verbose = settings.value("verbose", 1);
  options.run.log_to_console = settings.value("log_to_console", std::string("rank0"));
  options.run.heartbeat_timeout = std::chrono::duration<double>(settings.value("heartbeat_timeout", 10.0));
  options.run.max_report_size = settings.value("max_report_size", options.run.max_report_size);
  if (const auto hang = settings.find("hang_timeout"); hang != settings.end() && hang->is_number())
    options.run.hang_timeout = std::chrono::duration<double>(hang->get<double>());
  if (const auto keep = settings.find("num_to_keep"); keep != settings.end() && keep->is_number())
    options.run.checkpoint.num_to_keep = keep->get<int>();
  options.run.stop = settings.value("stop", std::map<std::string, double>());
  options.run.checkpoint.score_attribute = settings.value("checkpoint_score_attribute", std::string());
  options.run.checkpoint.score_order = settings.value("checkpoint_score_order", std::string("max"));
  options.run.checkpoint.keep_all_ranks = settings.value("keep_all_ranks", false);
}

}  // namespace

AgentSlot::~AgentSlot() { drop(); }

int AgentSlot::connect() {
  const bool a_forks_copy = owner_ != getpid();
  if (engine_ && (a_forks_copy || is_closed(socket_.get()))) drop();
  if (!engine_) {
    engine_ = std::make_unique<engine::LocalEngine>();
    socket_ = std::move(engine_->start({}).front());
    agent_pid_ = engine_->agent_pid();
    owner_ = getpid();
  }
  return socket_.get();
}

void AgentSlot::drop() {
  agent_pid_ = 0;
  socket_.reset();
  engine_.reset();
}

driver::RunOutcome AgentSlot::run(const driver::RunPlan& plan) {
  if (in_run())
    throw ConfigError(
        "[fit] it was called inside of a callback of a run; a process has one run at a time: start the "
        "next one when fit() has returned");
  const std::lock_guard lock(mutex_);
  const Holder holder(runner_);
  try {
    driver::RunOutcome outcome = driver::run(plan, connect());
    if (!outcome.agent_usable) drop();
    return outcome;
  } catch (...) {
    // What it was doing is not known: the next run gets a new one.
    drop();
    throw;
  }
}

std::pair<int, std::string> AgentSlot::kept() {
  const std::lock_guard lock(mutex_);
  if (!engine_ || owner_ != getpid() || is_closed(socket_.get())) return {0, "the agent is gone"};
  try {
    driver::AgentLink agent(socket_.get());
    agent.send(wire::CountKept{});
    for (pollfd item{socket_.get(), POLLIN, 0}; ::poll(&item, 1, kAnswerWithin) == 1;)
      while (auto message = agent.receive())
        if (const auto* kept = std::get_if<wire::KeptWorkers>(&*message)) return {kept->alive, kept->lost};
  } catch (const Error& error) {
    drop();
    return {0, error.what()};
  }
  drop();
  return {0, "the agent did not answer"};
}

void AgentSlot::stop() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return drop();
  // A run goes on in another thread: its agent ends with everything that it started, and the run sees that.
  if (const int pid = agent_pid_; pid != 0) ::kill(pid, SIGTERM);
}

driver::RunOutcome launch(driver::RunPlan plan, AgentSlot* agent) {
  AgentSlot& slot = agent != nullptr ? *agent : process_agent();
  if (slot.in_run()) return slot.run(plan);  // which refuses, before a directory is made
  complete(plan);
  return slot.run(plan);
}

bool can_restore(const std::filesystem::path& path) { return store::RunDirectory(path).exists(); }

SavedFunction read_function(const std::filesystem::path& path) {
  sys::PrivateFiles files;
  files.enter(path);
  const store::RunDirectory directory(path, files);
  const auto record = driver::RunRecord::from_value(directory.read_run_json());
  SavedFunction saved{directory.read_file("function.pkl"), {}};
  for (const std::string& sha256 : {record.function_sha256, record.function_sha256_next})
    if (!sha256.empty()) saved.sha256.push_back(sha256);
  return saved;
}

void read_settings(const std::filesystem::path& path, TrainerOptions& options) {
  store::RunDirectory directory(path);
  if (!directory.exists()) throw ConfigError("[restore] " + path.string() + " holds no run: it has no run.json");
  const auto record = driver::RunRecord::from_value(directory.read_run_json());
  options.run.name = path.filename();
  options.run.storage_path = path.parent_path();
  read_as_written("run.json", [&] { take_settings(record, options); });
  if (directory.has_file("params.json")) options.config = directory.read_json("params.json");
}

}  // namespace lockstep::train
