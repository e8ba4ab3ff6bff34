#include "agent/attempt.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::agent {

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
  for (const auto& spec : start_.workers)
    workers_.push_back(
        std::make_unique<Worker>(loop_, driver_, start_.attempt, spec.rank, [this](Worker& worker) { gone(worker); }));
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
  // What a rank gets of its own must be there before its libraries are loaded: OpenMP reads its variables then.
  std::vector<std::map<std::string, std::string>> environments;
  for (const auto& worker : start_.workers) {
    environments.push_back(worker.begin.value("env", std::map<std::string, std::string>()));
    environments.back().insert(configure.env.begin(), configure.env.end());
  }
  const auto ends = open();
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = configure.program;
  options.cwd = configure.cwd;
  options.own_session = true;
  options.parent_death_signal = SIGKILL;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const auto& [socket, log, stacks] = ends[i];
    options.env = std::move(environments[i]);
    options.env->insert_or_assign("LOCKSTEP_WORKER_FD", "3");
    options.env->insert_or_assign("LOCKSTEP_PAYLOAD_FD", "4");
    options.env->insert_or_assign("LOCKSTEP_STACKS_FD", "5");
    options.fds = {{null.get(), 0},   {log.get(), 1},      {log.get(), 2},
                   {socket.get(), 3}, {payload_.get(), 4}, {stacks.get(), 5}};
    workers_[i]->started(sys::spawn(options));
  }
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
  if (killing_)
    worker->kill();
  else if (stopped_)
    worker->signal(SIGINT);
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
  for (const auto& worker : workers_) worker->signal(SIGINT);
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
  if (std::ranges::all_of(workers_, &Worker::gone, [](const auto& each) -> const Worker& { return *each; }))
    loop_.post(ended_);
}

}  // namespace lockstep::agent
