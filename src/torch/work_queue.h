#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep::torch {

/// One exchange that was asked for: what c10d callers wait for, or whose future they have.
class ExchangeWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `title` is what profilers show, with the shapes of `inputs`; `outputs` is the result.
  ExchangeWork(int rank, c10d::OpType type, const char* title, const std::optional<Tensors>& inputs, Tensors outputs,
               std::uint64_t number);

  /// Once: the exchange is over. Errors of Lockstep's become c10::DistBackendError.
  void end(const std::exception_ptr& error, int source = -1);

  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  int sourceRank() const override { return source_; }
  std::uint64_t getSequencenumber() const override { return number_; }

 private:
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::uint64_t number_;
  int source_ = -1;
};
using WorkPointer = c10::intrusive_ptr<ExchangeWork>;

/// Runs jobs one after the other, in the order in which they come: in a thread of its own, which the first one starts.
class WorkQueue {
 public:
  using Job = std::function<void()>;

  WorkQueue();
  /// close(); in a child of fork(), where the thread is not, nothing.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// `here`: the caller waits anyway; when nothing else is under way, the job runs in its thread, and is done.
  void add(WorkPointer work, Job job, bool here);
  /// Returns when all jobs are done. Later ones are refused.
  void close();

 private:
  struct Entry {
    WorkPointer work;
    Job job;
  };
  void check_open() const;
  void serve();
  static void run(Entry entry);

  int owner_pid_;
  std::mutex mutex_;  ///< guards the rest
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool busy_ = false;
  bool closing_ = false;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace lockstep::torch
