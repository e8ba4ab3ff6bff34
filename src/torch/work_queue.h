#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::torch {

/// What callers of c10d expect of an error of Lockstep's: torch.distributed.DistBackendError in Python.
std::exception_ptr as_c10d_error(const std::exception_ptr& error);

/// One exchange that was asked for: what c10d callers wait for, or whose future they have.
class ExchangeWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `title` is what profilers show, with the shapes of `inputs`; `outputs` is the result.
  ExchangeWork(int rank, c10d::OpType type, const char* title, const std::optional<Tensors>& inputs, Tensors outputs,
               std::uint64_t number);

  /// Once: the exchange is over. Errors of Lockstep's become c10::DistBackendError. Callbacks of the future run here.
  void end(const std::exception_ptr& error, int source = -1);
  /// The same when there can be no callbacks, because nobody has the future; else false, and nothing happens.
  bool end_if_unwatched(const std::exception_ptr& error, int source);

  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override { return source_; }
  std::uint64_t getSequencenumber() const override { return number_; }

 private:
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::uint64_t number_;
  int source_ = -1;
  std::mutex watch_;      ///< guards the next
  bool watched_ = false;  ///< somebody has the future
};
using WorkPointer = c10::intrusive_ptr<ExchangeWork>;

/// Runs jobs one after the other, in the order in which they come, in a thread of its own, which the first one starts.
///
/// A job's work ends in the thread that ran it, and its callbacks may take their time, or wait for later jobs: another
/// thread goes on with those meanwhile.
class WorkQueue {
 public:
  using Job = std::function<void()>;

  WorkQueue();
  /// close()
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// `here`: the caller waits anyway; when nothing else is under way, the job runs in its thread, and is done. The job
  /// runs without gradients, and in inference mode when the caller is in it.
  void add(WorkPointer work, Job job, bool here);
  /// Ends a work that is not of this queue, from a thread that its callbacks must not hold up.
  void end(const WorkPointer& work, const std::exception_ptr& error, int source);
  /// Whether this is the process that made it, and not a child of fork().
  bool is_owner() const;
  /// Returns when all jobs are done. Later ones are refused. In a child of fork(), where the threads are not, nothing.
  void close();

 private:
  struct Entry {
    WorkPointer work;
    Job job;
    bool inference_mode;
  };
  struct State;
  static void provide_thread(const std::shared_ptr<State>& state);
  static void serve(const std::shared_ptr<State>& state);
  static std::exception_ptr run(Entry& entry);

  int owner_pid_;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::torch
