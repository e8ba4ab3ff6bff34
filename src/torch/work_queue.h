#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::torch {

/// Converts an error of Lockstep to what callers of c10d expect: torch.distributed.DistBackendError in Python.
std::exception_ptr as_c10d_error(const std::exception_ptr& error);

/// One pending call: c10d callers wait for it or hold its future.
class ExchangeWork final : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `title` is what profilers show, with the shapes of `inputs`; `outputs` is the result.
  ExchangeWork(int rank, c10d::OpType type, const char* title, const std::optional<Tensors>& inputs, Tensors outputs,
               std::uint64_t number);

  /// Completes the call; only once. Errors of Lockstep become c10::DistBackendError. Callbacks of the future run here.
  void end(const std::exception_ptr& error, int source = -1);
  /// The same if there can be no callbacks, because nobody holds the future; otherwise does nothing and returns false.
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
  bool watched_ = false;  ///< somebody holds the future
};
using WorkPointer = c10::intrusive_ptr<ExchangeWork>;

/// Runs jobs one after the other, in order, in its own thread, which the first job starts.
///
/// A job completes in the thread that ran it. Its callbacks may be slow, or wait for later jobs; another thread runs
/// those meanwhile.
class WorkQueue {
 public:
  using Job = std::function<void()>;

  WorkQueue();
  /// close()
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// `here`: the caller waits anyway, so if the queue is empty the job runs in the caller's thread. The job runs
  /// without gradients, and in inference mode if the caller is in it.
  void add(WorkPointer work, Job job, bool here);
  /// Completes a work that is not from this queue, called from a thread that its callbacks must not block.
  void end(const WorkPointer& work, const std::exception_ptr& error, int source);
  /// Whether this is the process that created it, and not a child of fork().
  bool is_owner() const;
  /// Returns once all jobs are done. Later ones are refused. Does nothing in a child of fork(), which does not have the
  /// threads.
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
