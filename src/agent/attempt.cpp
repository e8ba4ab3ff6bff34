#include "agent/attempt.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/log.h"
#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::agent {
namespace {

/// What a rank gets of its own must be there before its libraries are loaded: OpenMP reads its variables then.
std::map<std::string, std::string> environment_of(const wire::WorkerSpec& worker) {
  return worker.begin.value("env", std::map<std::string, std::string>());
}

}  // namespace

bool killed_for_memory(sys::ExitStatus status, bool killed_by_us, std::uint64_t kills_before, std::uint64_t kills_now) {
  return status.signal == SIGKILL && !killed_by_us && kills_now > kills_before;
}

Attempt::Attempt(Loop& loop, DriverLink& driver, wire::StartAttempt start, std::function<void()> ended)
    : loop_(loop),
      driver_(driver),
      start_(std::move(start)),
      ended_(std::move(ended)),
      memory_kills_before_(memory_kills_.count()),
      grace_(loop) {
  for (const auto& spec : start_.workers) workers_.push_back(make_worker(spec.rank));
}

std::unique_ptr<Worker> Attempt::make_worker(int rank) {
  return std::make_unique<Worker>(loop_, driver_, start_.attempt, rank, [this](Worker& worker) { gone(worker); });
}

std::vector<Worker::Ends> Attempt::open() {
  payload_ = sys::sealed_memory("lockstep-payload", start_.payload);
  std::vector<Worker::Ends> ends;
  for (std::size_t i = 0; i < workers_.size(); ++i)
    ends.push_back(workers_[i]->open(wire::encode_value(start_.workers[i].begin)));
  start_.payload = {};
  start_.workers = {};
  return ends;
}

void Attempt::start(ForkServer& server) {
  const auto ends = open();
  for (std::size_t i = 0; i < workers_.size(); ++i) server.fork(workers_[i]->rank(), ends[i], payload_.get());
}

void Attempt::start(const wire::Configure& configure) {
  std::vector<std::map<std::string, std::string>> environments;
  for (const auto& worker : start_.workers) environments.push_back(environment_of(worker));
  const auto ends = open();
  for (std::size_t i = 0; i < workers_.size(); ++i)
    execute(*workers_[i], configure, ends[i], std::move(environments[i]));
}

void Attempt::execute(Worker& worker, const wire::Configure& configure, const Worker::Ends& ends,
                      std::map<std::string, std::string> env) {
  const auto& [socket, log, stacks] = ends;
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = configure.program;
  options.cwd = configure.cwd;
  options.own_session = true;
  options.parent_death_signal = SIGKILL;
  env.insert(configure.env.begin(), configure.env.end());
  options.env = std::move(env);
  options.env->insert_or_assign("LOCKSTEP_WORKER_FD", "3");
  options.env->insert_or_assign("LOCKSTEP_PAYLOAD_FD", "4");
  options.env->insert_or_assign("LOCKSTEP_STACKS_FD", "5");
  options.fds = {{null.get(), 0},   {log.get(), 1},      {log.get(), 2},
                 {socket.get(), 3}, {payload_.get(), 4}, {stacks.get(), 5}};
  worker.started(sys::spawn(options));
}

bool Attempt::all_gone() const {
  return std::ranges::all_of(workers_, &Worker::gone, [](const auto& each) -> const Worker& { return *each; });
}

Worker* Attempt::renew(int rank) {
  const auto found = std::ranges::find(workers_, rank, [](const auto& worker) { return worker->rank(); });
  if (stopped_ || kept_ || found == workers_.end() || !(*found)->gone() || all_gone()) return nullptr;
  // What it started has no part in the rank's new life. The group's number is not given away while it has members.
  if ((*found)->pid() != 0) ::kill(-(*found)->pid(), SIGKILL);
  *found = make_worker(rank);
  return found->get();
}

void Attempt::restart(const wire::WorkerSpec& spec, ForkServer& server) {
  Worker* worker = renew(spec.rank);
  if (worker == nullptr) return;
  const auto ends = worker->open(wire::encode_value(spec.begin));
  if (server.dead()) return worker->never_started();
  server.fork(spec.rank, ends, payload_.get());
}

void Attempt::restart(const wire::WorkerSpec& spec, const wire::Configure& configure) {
  Worker* worker = renew(spec.rank);
  if (worker == nullptr) return;
  const auto ends = worker->open(wire::encode_value(spec.begin));
  try {
    execute(*worker, configure, ends, environment_of(spec));
  } catch (const EngineError& error) {
    log_error(error.what());
    worker->never_started();
  }
}

void Attempt::kill(int rank) {
  if (Worker* worker = find(rank)) worker->kill();
}

bool Attempt::keep() {
  if (stopped_ ||
      !std::ranges::all_of(workers_, &Worker::alive, [](const auto& each) -> const Worker& { return *each; }))
    return false;
  for (const auto& worker : workers_) worker->keep();
  kept_ = true;
  return true;
}

bool Attempt::fits(const wire::StartAttempt& start) const {
  return kept_ && std::ranges::equal(workers_, start.workers, [](const auto& worker, const auto& spec) {
           return worker->alive() && worker->rank() == spec.rank;
         });
}

std::pair<int, std::string> Attempt::survey() const {
  int alive = 0;
  std::string lost;
  for (const auto& worker : workers_) {
    if (worker->alive()) ++alive;
    if (!worker->gone()) continue;
    const auto [code, signal] = worker->status();
    lost +=
        (lost.empty() ? "rank " : ", rank ") + std::to_string(worker->rank()) +
        (signal != 0 ? " was killed by signal " + std::to_string(signal) : " ended with code " + std::to_string(code));
  }
  return {alive, lost};
}

void Attempt::start_again(wire::StartAttempt start) {
  start_ = std::move(start);
  kept_ = false;
  memory_kills_before_ = memory_kills_.count();
  const Bytes payload = wire::encode(wire::Payload{std::move(start_.payload)});
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const std::array messages{wire::encode_value(start_.workers[i].begin), payload};
    workers_[i]->begin(start_.attempt, messages);
  }
  start_.payload = {};
  start_.workers = {};
}

Worker* Attempt::find(int rank) {
  const auto found = std::ranges::find(workers_, rank, [](const auto& worker) { return worker->rank(); });
  return found == workers_.end() ? nullptr : found->get();
}

void Attempt::started(int rank, sys::Process process) {
  Worker* worker = find(rank);
  if (worker == nullptr) return;
  worker->started(std::move(process));
  if (killing_) worker->kill();
}

void Attempt::exited(int pid, sys::ExitStatus status) {
  for (const auto& worker : workers_)
    if (worker->pid() == pid) return worker->parent_says(status);
}

void Attempt::server_died() {
  for (const auto& worker : workers_)
    if (worker->pid() != 0) worker->parent_says(std::nullopt);
  abandon_unborn();
}

void Attempt::abandon_unborn() {
  for (const auto& worker : workers_)
    if (worker->pid() == 0 && !worker->gone()) worker->never_started();
}

void Attempt::stop(bool interrupt, Seconds grace) {
  stopped_ = true;
  if (!interrupt) return kill();
  send(-1, wire::encode(wire::Interrupt{}));
  grace_.set(grace, [this] { kill(); });
}

void Attempt::kill() {
  killing_ = true;
  grace_.cancel();
  for (const auto& worker : workers_) worker->kill();
}

void Attempt::dump_stacks(Seconds timeout) {
  for (const auto& worker : workers_) worker->dump_stacks(timeout);
}

void Attempt::send(int rank, std::span<const std::uint8_t> message) {
  for (const auto& worker : workers_)
    if (rank < 0 || worker->rank() == rank) worker->send(message);
}

void Attempt::pause(bool paused) {
  for (const auto& worker : workers_) worker->pause(paused);
}

std::vector<int> Attempt::pids() const {
  std::vector<int> result;
  for (const auto& worker : workers_)
    if (worker->pid() != 0 && !worker->gone()) result.push_back(worker->pid());
  return result;
}

void Attempt::gone(Worker& worker) {
  const auto status = worker.status();
  const bool memory = killed_for_memory(status, worker.killed(), memory_kills_before_, memory_kills_.count());
  if (!kept_)
    driver_.send(wire::WorkerExited{start_.attempt, worker.rank(), status.code, status.signal, memory, stopped_});
  if (all_gone()) loop_.post(ended_);
}

}  // namespace lockstep::agent
