#include <lockstep/trainer.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "base/failure.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/local/local_engine.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "store/run_settings.h"
#include "sys/descriptor.h"
#include "sys/environment.h"
#include "sys/sockets.h"
#include "train/active_run.h"
#include "train/launch.h"
#include "train/requeue.h"
#include "worker/native_stacks.h"
#include "worker/worker_session.h"
#include "worker/zygote.h"

namespace lockstep {
namespace {

/// Filled before main by LOCKSTEP_TRAIN_FUNCTION.
std::map<std::string, TrainFunction>& functions() {
  static std::map<std::string, TrainFunction> registered;
  return registered;
}

std::vector<std::string>& arguments() {
  static std::vector<std::string> given;
  return given;
}

std::string name_of(TrainFunction function) {
  if (std::string name = detail::function_name(function); !name.empty()) return name;
  throw ConfigError(
      "[trainer] the training function is not registered; write LOCKSTEP_TRAIN_FUNCTION(name) behind its definition");
}

/// For the signal handler, and to know whether this process is a worker.
worker::WorkerSession* running_session = nullptr;

/// Sets the environment and the directory of a forked worker, and the number of threads of OpenMP and OpenBLAS, which
/// read the environment only when they were loaded.
void enter(const wire::Begin& begin) {
  for (const auto& [name, value] : begin.env)
    if (const char* now = std::getenv(name.c_str()); now == nullptr || now != value)
      setenv(name.c_str(), value.c_str(), 1);
  if (!begin.cwd.empty() && chdir(begin.cwd.c_str()) != 0)
    throw EngineError("[worker] cannot enter " + in_quotes(begin.cwd) + ": " + std::strerror(errno));
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads == nullptr || std::atoi(threads) < 1) return;
  for (const char* name : {"omp_set_num_threads", "openblas_set_num_threads"})
    if (const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, name))) set(std::atoi(threads));
}

/// What datasets() of the trainer gave; an empty object if there are no data sets. Closes the descriptor.
Value data_plan_in(int payload) {
  if (payload < 0) return Value::object();
  const sys::Descriptor owned(payload);
  const Bytes bytes = sys::read_all(payload);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.empty() ? Value::object() : parse_json(text, "the data sets");
}

/// Runs a worker from start to end. Ends the process with _exit, so that destructors of the user's globals do not run
/// in every rank.
[[noreturn]] void run_worker(int socket, int stacks, int payload) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  worker::install_native_stacks(stacks);
  auto* session = new worker::WorkerSession(socket);
  enter(session->begin());
  running_session = session;
  // A SIGINT that the driver did not ask for ends the process, as it would end any other.
  std::signal(SIGINT, [](int signal) {
    if (running_session->stopping()) return;
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  });
  int code = 0;
  Failure failure;
  failure.kind = FailureKind::exception;
  try {
    const auto found = functions().find(session->begin().function);
    if (found == functions().end())
      throw ConfigError("[worker] no function " + in_quotes(session->begin().function) +
                        " is registered in this program");
    session->set_data_plan(data_plan_in(payload));
    session->start();
    try {
      found->second(*session);
    } catch (const StopTraining&) {  // its last report
    }
    session->finish({});
  } catch (const std::exception& error) {
    failure = failure_of(error);
    code = 1;
  } catch (...) {
    failure.message = "the training function threw something that is not a std::exception";
    code = 1;
  }
  std::fflush(nullptr);
  if (code != 0) session->fail(failure);
  _exit(code);
}

/// The result of a restored run that has nothing left to do.
std::optional<Result> finished_before(const TrainerOptions& options) {
  Result before = Result::from_path(options.run.storage_path / options.run.name);
  return before.state == "finished" ? std::optional(std::move(before)) : std::nullopt;
}

/// What RunConfig::resume says. Returns whether a run is continued, and then names it in the options.
bool resumes(TrainerOptions& options) {
  const auto place = store::run_to_resume(options.run);
  if (!place) return false;
  options.run.name = place->filename();
  options.run.storage_path = place->parent_path();
  options.run.resume = "never";
  return true;
}

driver::RunPlan plan_of(const std::string& trainer, const std::string& function, const TrainerOptions& options,
                        bool restore, const Bytes& data) {
  driver::RunPlan plan;
  plan.function.payload = data;
  plan.options = options;
  plan.restore = restore;
  plan.trainer = trainer;
  plan.function.name = function;
  auto& fork_server = plan.program.fork_server;
  fork_server.program = arguments();
  fork_server.program[0] = std::filesystem::read_symlink("/proc/self/exe");
  fork_server.env = sys::environment();
  // Arrow's jemalloc, which it does not use by default, would start a thread, and a process with threads cannot fork.
  fork_server.env.emplace("JE_ARROW_MALLOC_CONF", "background_thread:false");
  fork_server.cwd = std::filesystem::current_path();
  return plan;
}

}  // namespace

namespace detail {

bool register_function(const char* name, TrainFunction function) {
  // Workers run the same program, so they get the same numbers.
  std::string key = name;
  for (int n = 2; functions().contains(key) && functions()[key] != function; ++n)
    key = name + std::string("#") + std::to_string(n);
  functions()[key] = function;
  return true;
}

std::string function_name(TrainFunction function) {
  for (const auto& [name, each] : functions())
    if (each == function) return name;
  return "";
}

Session* running_session() { return lockstep::running_session; }

bool set_default_agent(const char* path) {
  engine::set_default_agent(path);
  return true;
}

}  // namespace detail

void init(int argc, char** argv) {
  arguments().assign(argv, argv + argc);
  if (const char* socket = std::getenv("LOCKSTEP_WORKER_FD")) {
    const char* stacks = std::getenv("LOCKSTEP_STACKS_FD");
    const char* payload = std::getenv("LOCKSTEP_PAYLOAD_FD");
    const int messages = std::atoi(socket), place = stacks != nullptr ? std::atoi(stacks) : STDERR_FILENO;
    const int data = payload != nullptr ? std::atoi(payload) : -1;
    // Programs that the function starts are not workers.
    for (const char* name : {"LOCKSTEP_WORKER_FD", "LOCKSTEP_STACKS_FD", "LOCKSTEP_PAYLOAD_FD"}) unsetenv(name);
    run_worker(messages, place, data);
  }
  if (const char* agent = std::getenv("LOCKSTEP_FORK_SERVER_FD")) {
    const int socket = std::atoi(agent);
    unsetenv("LOCKSTEP_FORK_SERVER_FD");
    const worker::Birth birth = worker::serve_forks(socket, arguments());
    run_worker(birth.socket, birth.stacks, birth.payload);
  }
}

DataParallelTrainer::DataParallelTrainer(TrainFunction function, TrainerOptions options)
    : function_(name_of(function)), options_(std::move(options)) {
  validate(options_);
}

DataParallelTrainer& DataParallelTrainer::datasets(const std::map<std::string, DatasetPlan>& plans,
                                                   const DataConfig& config) {
  validate(config);
  for (const auto& names : {config.datasets_to_split, config.datasets_to_shuffle})
    for (const std::string& name : names)
      if (name != "train" && !plans.contains(name))
        throw ConfigError("[trainer] DataConfig: there is no data set " + in_quotes(name));
  Value datasets = Value::object();
  for (const auto& [name, plan] : plans) datasets[name] = plan.value();
  const std::string text = to_json(Value{{"datasets", std::move(datasets)}, {"config", store::to_value(config)}});
  data_.assign(text.begin(), text.end());
  return *this;
}

DataParallelTrainer DataParallelTrainer::restore(const std::filesystem::path& path, TrainFunction function) {
  TrainerOptions options;
  std::filesystem::path run = std::filesystem::absolute(store::find_run(path).value_or(path)).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();  // "results/digits-1/"
  store::RunSettings saved = store::read_run_settings(run);
  options.scaling = std::move(saved.scaling);
  options.run = std::move(saved.run);
  options.run.name = run.filename();
  options.run.storage_path = run.parent_path();
  const store::RunDirectory directory(run);
  if (directory.has_file("params.json")) options.config = directory.read_json("params.json");
  DataParallelTrainer trainer(function, std::move(options));
  trainer.restore_ = true;
  return trainer;
}

bool DataParallelTrainer::can_restore(const std::filesystem::path& path) { return store::run_exists(path); }

RunHandle DataParallelTrainer::prepare(bool observed) {
  if (arguments().empty()) throw ConfigError("[trainer] call lockstep::init(argc, argv) first in main");
  train::ActiveRun::Options options;
  options.observed = observed;
  auto run = std::make_shared<RunHandle::Run>(options);
  TrainerOptions trained = options_;
  const bool resumed = !restore_ && resumes(trained);
  auto before = (restore_ && !goes_on_) || resumed ? finished_before(trained) : std::nullopt;
  if (before && resumed && before->config != trained.config) before.reset();
  if (before)
    run->set_finished(*std::move(before));
  else
    run->prepare(plan_of(trainer_, function_, trained, restore_ || resumed, data_));
  return RunHandle(std::move(run));
}

Result DataParallelTrainer::fit() {
  const RunHandle handle = prepare(false);
  handle.run_->run();
  Result result = handle.wait();
  if (result.state == "preempted") std::exit(train::kPreemptedCode);
  return result;
}

RunHandle DataParallelTrainer::start() {
  RunHandle handle = prepare(true);
  train::run_in_background(handle.run_);
  return handle;
}

}  // namespace lockstep
