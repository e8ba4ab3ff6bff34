#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/group.h"
#include "collective/nodes.h"
#include "torch/elements.h"
#include "torch/work_queue.h"

namespace lockstep::torch {

/// The c10d backend "lockstep": exchanges CPU tensors between processes, on one node through shared memory, and between
/// nodes by Gloo's transport.
///
/// A thin layer on collective::Group, which has the contracts: the same bits on every rank and in every run, and
/// errors that name the rank that died, left or was silent. This layer adds tensors (any strided ones, contiguous or
/// not; sparse ones in allreduce), c10d's calls, and a queue: asynchronous collectives run in a thread, in order;
/// synchronous ones run in the caller's thread. Messages between two ranks do not use the queue.
class SharedMemoryBackend final : public c10d::Backend {
 public:
  using TensorLists = std::vector<Tensors>;
  using Result = c10::intrusive_ptr<c10d::Work>;
  using Timeout = std::chrono::milliseconds;

  static constexpr const char* kName = "lockstep";

  /// Makes the group once all ranks have called it. Throws collective::CannotShareMemory on every rank if ranks of one
  /// node cannot share memory, because they are of different users or in different containers. Other errors are
  /// c10::DistBackendError.
  SharedMemoryBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Timeout timeout,
                      const collective::Place& place = {});
  ~SharedMemoryBackend() override;

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Timeout timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}  // all ranks start at 0
  std::uint64_t getSequenceNumberForGroup() override { return number_; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  /// Makes every call of every rank fail, now and later.
  void abort() override;
  /// Finishes pending calls, and leaves. Sent messages get some time to be received.
  void shutdown() override;

  Result broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Result allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Result allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Result allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Result reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Result allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Result _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Result allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Result allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override;
  Result gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Result scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Result reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  Result _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& options) override;
  Result reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& options) override;
  Result alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                       std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Result alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Result barrier(const c10d::BarrierOptions& options) override;
  Result send(Tensors& tensors, int to, int tag) override;
  Result recv(Tensors& tensors, int from, int tag) override;
  Result recvAnysource(Tensors& tensors, int tag) override;

 private:
  using Group = collective::Group;
  struct Call;  ///< what a c10d call and its options have in common
  using Exchange = std::function<void(Group& group)>;
  Result start(const Call& call, const Tensors& inputs, Tensors outputs, Exchange exchange);
  Result receive(const Call& call, Tensors& tensors, int from, int tag);
  template <class Post>
  void post(const Post& post) const;
  std::shared_ptr<Group> group() const;

  std::atomic<Timeout> timeout_;
  std::atomic<std::uint64_t> number_{0};
  mutable std::mutex mutex_;                                         ///< guards the pointer
  std::shared_ptr<Group> group_;                                     ///< until shutdown()
  std::shared_ptr<WorkQueue> queue_{std::make_shared<WorkQueue>()};  ///< unfinished messages use it too
};

}  // namespace lockstep::torch
