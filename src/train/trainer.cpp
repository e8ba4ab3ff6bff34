#include <lockstep/trainer.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <map>

#include "base/text.h"
#include "driver/run_record.h"
#include "engine/local/local_engine.h"
#include "store/find_run.h"
#include "sys/environment.h"
#include "sys/signals.h"
#include "train/launch.h"
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
  for (const auto& [name, each] : functions())
    if (each == function) return name;
  throw ConfigError(
      "[trainer] the training function is not registered; write LOCKSTEP_TRAIN_FUNCTION(name) behind its definition");
}

std::string type_name(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : typeid(error).name();
  std::free(name);
  return text;
}

/// For the signal handler, and for what needs to know whether this is a worker.
worker::WorkerSession* running_session = nullptr;

/// What an exception says, without the native stack that LibTorch's add to it: that becomes the traceback.
void describe(const std::exception& error, Failure& failure) {
  failure.type = type_name(error);
  failure.message = error.what();
  if (const auto stack = failure.message.find("\nException raised from "); stack != std::string::npos) {
    failure.traceback = failure.message.substr(stack + 1);
    failure.message.resize(stack);
  }
}

/// Makes a worker that was forked look like one that was executed: its environment, its directory, and the number of
/// threads of OpenMP and OpenBLAS, which was read from the environment when the library was loaded.
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

/// A worker's whole life. Ends the process by _exit: destructors of the user's globals are not ours to run in every
/// rank.
[[noreturn]] void run_worker(int socket, int stacks) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  worker::install_native_stacks(stacks);
  auto* session = new worker::WorkerSession(socket);
  enter(session->begin());
  running_session = session;
  // One that the driver did not ask for ends the process, as it would end any other.
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
    session->start();
    try {
      found->second(*session);
    } catch (const StopTraining&) {  // its last report
    }
    session->finish({});
  } catch (const std::exception& error) {
    describe(error, failure);
    code = 1;
  } catch (...) {
    failure.message = "the training function threw something that is no std::exception";
    code = 1;
  }
  std::fflush(nullptr);
  if (code != 0) session->fail(failure);
  _exit(code);
}

/// How to go on after a failure.
std::string advice(const std::string& trainer, const Result& result) {
  if (!train::can_restore(result.path)) return "";
  const std::string call =
      "lockstep::" + trainer + "::restore(" + in_quotes(result.path.string()) + ", function).fit()";
  return result.checkpoint ? "\nto go on from the last checkpoint: " + call
                           : "\nthere is no checkpoint yet; to start again: " + call;
}

}  // namespace

namespace detail {

bool register_function(const char* name, TrainFunction function) {
  // A worker is the same program and comes to the same numbers.
  std::string key = name;
  for (int n = 2; functions().contains(key) && functions()[key] != function; ++n)
    key = name + std::string("#") + std::to_string(n);
  functions()[key] = function;
  return true;
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
    const int messages = std::atoi(socket), place = stacks != nullptr ? std::atoi(stacks) : STDERR_FILENO;
    // What the function starts is no worker.
    for (const char* name : {"LOCKSTEP_WORKER_FD", "LOCKSTEP_STACKS_FD", "LOCKSTEP_PAYLOAD_FD"}) unsetenv(name);
    run_worker(messages, place);
  }
  if (const char* agent = std::getenv("LOCKSTEP_FORK_SERVER_FD")) {
    const int socket = std::atoi(agent);
    unsetenv("LOCKSTEP_FORK_SERVER_FD");
    const worker::Birth birth = worker::serve_forks(socket, arguments());
    close(birth.payload);
    run_worker(birth.socket, birth.stacks);
  }
}

DataParallelTrainer::DataParallelTrainer(TrainFunction function, TrainerOptions options)
    : function_(name_of(function)), options_(std::move(options)) {
  validate(options_);
}

DataParallelTrainer DataParallelTrainer::restore(const std::filesystem::path& path, TrainFunction function) {
  TrainerOptions options;
  std::filesystem::path run = std::filesystem::absolute(store::find_run(path).value_or(path)).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();  // "results/digits-1/"
  train::read_settings(run, options);
  DataParallelTrainer trainer(function, std::move(options));
  trainer.restore_ = true;
  return trainer;
}

bool DataParallelTrainer::can_restore(const std::filesystem::path& path) { return store::find_run(path).has_value(); }

Result DataParallelTrainer::fit() {
  if (arguments().empty()) throw ConfigError("[trainer] call lockstep::init(argc, argv) first in main");
  if (restore_) {
    Result before = Result::from_path(options_.run.storage_path / options_.run.name);
    if (before.state == "finished") return before;
  }
  driver::RunPlan plan;
  plan.options = options_;
  plan.restore = restore_;
  plan.trainer = trainer_;
  plan.function = function_;
  plan.program.fork_server = true;
  plan.program.program = arguments();
  plan.program.program[0] = std::filesystem::read_symlink("/proc/self/exe");
  plan.program.env = sys::environment();
  plan.program.cwd = std::filesystem::current_path();
  driver::RunOutcome outcome;
  {
    sys::SignalWatch signals;  // from before anything starts
    plan.signals = &signals;
    outcome = train::launch(std::move(plan));
  }
  if (outcome.signal != 0) raise(outcome.signal);
  if (outcome.result.state == "failed") {
    const std::string message = outcome.result.error + advice(trainer_, outcome.result);
    throw TrainingError(message, std::make_shared<const Result>(std::move(outcome.result)));
  }
  return std::move(outcome.result);
}

}  // namespace lockstep
