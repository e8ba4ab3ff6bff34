#include "torch/work_queue.h"

#include <ATen/core/grad_mode.h>
#include <lockstep/error.h>
#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace lockstep::torch {
namespace {

/// What callers of c10d expect: torch.distributed.DistBackendError in Python.
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

}  // namespace

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

ExchangeWork::Tensors ExchangeWork::result() {
  TORCH_CHECK(isCompleted(), "the exchange is not over; call wait() before result()");
  return outputs_;
}

WorkQueue::WorkQueue() : owner_pid_(::getpid()) {}

WorkQueue::~WorkQueue() {
  if (::getpid() == owner_pid_)
    close();
  else
    static_cast<void>(thread_.release());  // NOLINT(bugprone-unused-return-value): it lives in the parent
}

void WorkQueue::check_open() const {
  TORCH_CHECK(::getpid() == owner_pid_,
              "this process group was made in the process that this one was forked from, and cannot be used here; make "
              "a new one");
  TORCH_CHECK(!closing_, "this process group was shut down; make a new one");
}

void WorkQueue::add(WorkPointer work, Job job, bool here) {
  Entry entry{std::move(work), std::move(job)};
  {
    std::unique_lock lock(mutex_);
    check_open();
    if (!here || busy_ || !entries_.empty()) {
      entries_.push_back(std::move(entry));
      if (!thread_) thread_ = std::make_unique<std::thread>([this] { serve(); });
      lock.unlock();
      changed_.notify_all();
      return;
    }
    busy_ = true;
  }
  run(std::move(entry));
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  changed_.notify_all();
}

void WorkQueue::close() {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return entries_.empty() && !busy_; });
  }
  if (thread_ && thread_->joinable()) thread_->join();
}

void WorkQueue::serve() {
  ::pthread_setname_np(::pthread_self(), "lockstep-c10d");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !busy_ && (closing_ || !entries_.empty()); });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    busy_ = true;
    lock.unlock();
    run(std::move(entry));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void WorkQueue::run(Entry entry) {
  const at::NoGradGuard no_grad;
  std::exception_ptr error;
  try {
    entry.job();
  } catch (...) {
    error = std::current_exception();
  }
  entry.job = nullptr;  // lets go of its tensors before the caller goes on
  entry.work->end(error);
}

}  // namespace lockstep::torch
