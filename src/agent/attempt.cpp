#include "agent/attempt.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "base/log.h"
#include "sys/sockets.h"
#include "wire/codec.h"

namespace lockstep::agent {

bool killed_for_memory(sys::ExitStatus status, bool killed_by_us, std::uint64_t kills_before, std::uint64_t kills_now) {
  return status.signal == SIGKILL && !killed_by_us && kills_now > kills_before;
}

Attempt::Attempt(Loop& loop, DriverLink& driver, wire::StartAttempt start, Handlers handlers)
    : loop_(loop),
      driver_(driver),
      start_(std::move(start)),
      handlers_(std::move(handlers)),
      memory_kills_before_(memory_kills_.count()),
      grace_(loop) {
  for (const auto& spec : start_.workers) workers_.push_back(make_worker(spec.rank));
}

Attempt::~Attempt() {
  if (server_ != nullptr) server_->leave(*this);
}

std::unique_ptr<Worker> Attempt::make_worker(int rank) {
  return std::make_unique<Worker>(loop_, driver_, start_.attempt, rank, [this](Worker& worker) { gone(worker); });
}

void Attempt::start(ForkServer& server) {
  server_ = &server;
  server_->join(*this);
  std::size_t asked = 0;
  try {
    payload_ = sys::sealed_memory("lockstep-payload", start_.payload);
    for (; asked < workers_.size(); ++asked) ask_for(*workers_[asked], start_.workers[asked].begin);
  } catch (const EngineError& error) {
    driver_.send(wire::AgentFailed{error.what()});
    stop(false, {});
    for (; asked < workers_.size(); ++asked) workers_[asked]->never_started();
  }
  start_.payload = {};
  start_.workers = {};
}

void Attempt::abandon() {
  stop(false, {});
  for (const auto& worker : workers_) worker->never_started();
}

void Attempt::ask_for(Worker& worker, const Value& begin) {
  const auto ends = worker.open(wire::encode_value(begin));
  server_->fork(*this, worker.rank(), ends, payload_.get());
}

void Attempt::restart(const wire::WorkerSpec& spec) {
  const auto found = std::ranges::find(workers_, spec.rank, [](const auto& worker) { return worker->rank(); });
  if (stopped_ || kept_ || found == workers_.end() || !(*found)->gone() || all_gone()) return;
  *found = make_worker(spec.rank);
  if (server_ == nullptr) return (*found)->never_started();
  try {
    ask_for(**found, spec.begin);
  } catch (const EngineError& error) {
    log_error(error.what());
    (*found)->never_started();
  }
}

bool Attempt::all_gone() const {
  return std::ranges::all_of(workers_, &Worker::gone, [](const auto& each) -> const Worker& { return *each; });
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
  first_end_.reset();
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

void Attempt::worker_started(int rank, sys::Process process) { find(rank)->started(std::move(process)); }

void Attempt::worker_refused(int rank, const std::string& why) {
  if (!stopped_)
    driver_.send(wire::AgentFailed{"[agent] rank " + std::to_string(rank) + " could not be forked: " + why});
  find(rank)->never_started();
  stop(false, {});
}

void Attempt::worker_exited(int pid, sys::ExitStatus status) {
  for (const auto& worker : workers_)
    if (worker->pid() == pid && !worker->gone()) return worker->parent_says(status);
}

void Attempt::server_died(const std::string&, bool) {
  server_ = nullptr;
  for (const auto& worker : workers_) {
    if (worker->pid() != 0)
      worker->parent_says(std::nullopt);
    else if (!worker->gone())
      worker->never_started();
  }
}

void Attempt::stop(bool interrupt, Seconds grace) {
  stopped_ = true;
  if (!interrupt) return kill();
  send(-1, wire::encode(wire::Interrupt{}));
  grace_.set(grace, [this] { kill(); });
}

void Attempt::kill() {
  grace_.cancel();
  // Workers that the fork server has not been asked for yet are never started.
  const auto unasked = server_ != nullptr ? server_->forget_requests(*this) : std::vector<int>{};
  for (const auto& worker : workers_) worker->kill();
  for (const int rank : unasked) find(rank)->never_started();
}

void Attempt::drop_checkpoints() {
  for (const auto& worker : workers_) worker->drop_checkpoints();
}

void Attempt::release(int rank, int report) {
  if (Worker* worker = find(rank)) worker->release(report);
}

Worker::Memory Attempt::take_memory() {
  Worker::Memory all;
  for (const auto& worker : workers_)
    for (auto& each : worker->take_memory()) all.push_back(std::move(each));
  return all;
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

void Attempt::gone(Worker& worker) {
  const auto status = worker.status();
  const bool memory = killed_for_memory(status, worker.killed(), memory_kills_before_, memory_kills_.count());
  if (!first_end_) first_end_ = now();
  handlers_.worker_gone();
  if (!kept_)
    driver_.send(wire::WorkerExited{start_.attempt, worker.rank(), status.code, status.signal, memory, stopped_});
  if (all_gone()) loop_.post(handlers_.all_gone);
}

}  // namespace lockstep::agent
