#include "torch/work_queue.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <lockstep/error.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

namespace lockstep::torch {

std::exception_ptr as_c10d_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
    return std::make_exception_ptr(c10::DistBackendError(here, ours.what()));
  } catch (...) {
    return std::current_exception();
  }
}

ExchangeWork::ExchangeWork(int rank, c10d::OpType type, const char* title, const std::optional<Tensors>& inputs,
                           Tensors outputs, std::uint64_t number)
    : Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))),
      number_(number) {}

void ExchangeWork::end(const std::exception_ptr& error, int source) {
  source_ = source;
  if (error) {
    const auto translated = as_c10d_error(error);
    future_->setError(translated);
    finish(translated);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
    finish();
  }
}

bool ExchangeWork::end_if_unwatched(const std::exception_ptr& error, int source) {
  const std::lock_guard lock(watch_);
  if (!watched_) end(error, source);
  return !watched_;
}

c10::intrusive_ptr<c10::ivalue::Future> ExchangeWork::getFuture() {
  const std::lock_guard lock(watch_);
  watched_ = true;
  return future_;
}

ExchangeWork::Tensors ExchangeWork::result() {
  TORCH_CHECK(isCompleted(), "the exchange is not over; call wait() before result()");
  return outputs_;
}

struct WorkQueue::State {
  std::mutex mutex;  ///< guards the rest
  std::condition_variable changed;
  std::deque<Entry> entries;
  std::deque<Job> endings;  ///< for works that are not from this queue
  bool busy = false;        ///< a job runs, in a thread of the queue or of a caller
  bool closing = false;
  int idle = 0;  ///< threads that wait for something to do
  std::vector<std::thread> threads;
  std::shared_ptr<State> kept;  ///< keeps itself alive in a child of fork()

  bool has_job() const { return !busy && !entries.empty(); }
  bool is_done() const { return closing && !busy && entries.empty() && endings.empty(); }
};

WorkQueue::WorkQueue() : owner_pid_(::getpid()), state_(std::make_shared<State>()) {}

WorkQueue::~WorkQueue() {
  close();
  // A child of fork() changes nothing: the state still belongs to the parent's threads.
  if (!is_owner()) state_->kept = state_;
}

bool WorkQueue::is_owner() const { return ::getpid() == owner_pid_; }

void WorkQueue::add(WorkPointer work, Job job, bool here) {
  TORCH_CHECK(is_owner(),
              "this process group was made in the process that this one was forked from, and cannot be used here; make "
              "a new one");
  Entry entry{std::move(work), std::move(job), c10::InferenceMode::is_enabled()};
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    TORCH_CHECK(!state.closing, "this process group was shut down; make a new one");
    if (!here || state.busy || !state.entries.empty()) {
      state.entries.push_back(std::move(entry));
      provide_thread(state_);
      return;
    }
    state.busy = true;
  }
  const auto error = run(entry);
  {
    const std::lock_guard lock(state.mutex);
    state.busy = false;
    provide_thread(state_);
  }
  entry.work->end(error);
}

void WorkQueue::end(const WorkPointer& work, const std::exception_ptr& error, int source) {
  if (work->end_if_unwatched(error, source)) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->closing) {
      state_->endings.emplace_back([work, error, source] { work->end(error, source); });
      return provide_thread(state_);
    }
  }
  work->end(error, source);
}

void WorkQueue::close() {
  if (!is_owner()) return;
  std::vector<std::thread> threads;
  {
    std::unique_lock lock(state_->mutex);
    state_->closing = true;
    provide_thread(state_);
    state_->changed.notify_all();
    state_->changed.wait(lock, [&] { return state_->is_done(); });
    threads.swap(state_->threads);
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();  // a callback called close()
    else
      thread.join();
  }
}

/// Makes sure that a thread runs the pending work; `mutex` is held. Threads that are in a callback do not count.
void WorkQueue::provide_thread(const std::shared_ptr<State>& state) {
  if (state->closing) state->changed.notify_all();
  if (!state->has_job() && state->endings.empty()) return;
  if (state->idle > 0)
    state->changed.notify_one();
  else
    state->threads.emplace_back([state] { serve(state); });
}

void WorkQueue::serve(const std::shared_ptr<State>& state) {
  ::pthread_setname_np(::pthread_self(), "lockstep-c10d");
  std::unique_lock lock(state->mutex);
  for (;;) {
    ++state->idle;
    state->changed.wait(lock, [&] { return state->has_job() || !state->endings.empty() || state->is_done(); });
    --state->idle;
    if (!state->endings.empty()) {
      const Job ending = std::move(state->endings.front());
      state->endings.pop_front();
      provide_thread(state);
      lock.unlock();
      ending();
    } else if (state->has_job()) {
      Entry entry = std::move(state->entries.front());
      state->entries.pop_front();
      state->busy = true;
      lock.unlock();
      const auto error = run(entry);
      lock.lock();
      state->busy = false;
      provide_thread(state);
      lock.unlock();
      entry.work->end(error);
    } else {
      return;
    }
    lock.lock();
  }
}

std::exception_ptr WorkQueue::run(Entry& entry) {
  std::optional<c10::InferenceMode> inference;
  if (entry.inference_mode) inference.emplace();
  const at::NoGradGuard no_grad;
  std::exception_ptr error;
  try {
    entry.job();
  } catch (...) {
    error = std::current_exception();
  }
  entry.job = nullptr;  // releases its tensors before the caller continues
  return error;
}

}  // namespace lockstep::torch
