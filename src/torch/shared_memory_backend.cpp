#include "torch/shared_memory_backend.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <lockstep/error.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "collective/join_group.h"
#include "torch/elements.h"
#include "torch/gloo_links.h"
#include "torch/sparse.h"

namespace lockstep::torch {

struct SharedMemoryBackend::Call {
  c10d::OpType type;
  const char* title;  ///< what profilers show
  Timeout timeout = c10d::kUnsetTimeout;
  bool async = true;

  template <class Options>
  Call(c10d::OpType type_, const char* title_, const Options& options)
      : type(type_), title(title_), timeout(options.timeout), async(options.asyncOp) {}
  Call(c10d::OpType type_, const char* title_) : type(type_), title(title_) {}

  /// For c10d's argument checks, whose messages say what is wrong.
  Refuse refuse() const {
    return [this](const std::string& what) { C10_THROW_ERROR(ValueError, "[" + std::string(title) + "] " + what); };
  }
};

namespace {

using collective::Buffer;
using collective::ConstBuffer;
using Group = collective::Group;

/// shutdown() waits at most this long for messages to be received.
constexpr std::chrono::seconds kTimeForSends{30};

/// The keys of one group in a c10d store. A store may outlive the group and be used for another group of the same name,
/// so each rank counts the groups that it has joined there.
class PrefixedStore final : public collective::KeyValueStore {
 public:
  PrefixedStore(c10::intrusive_ptr<c10d::Store> store, int rank)
      : store_(std::move(store)),
        prefix_("lockstep/" + std::to_string(store_->add("lockstep/groups_of/" + std::to_string(rank), 1)) + "/") {}
  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    store_->wait({prefix_ + key}, timeout);
    return store_->get_to_str(prefix_ + key);
  }
  c10::intrusive_ptr<c10d::Store> part(const std::string& name) const {
    return c10::make_intrusive<c10d::PrefixStore>(prefix_ + name, store_);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
};

/// Copies what was received into the tensor, unless there was an error. Returns that error, or the error of copying.
std::exception_ptr stored(const Elements& elements, bool inference_mode, const std::exception_ptr& error) {
  if (error) return error;
  try {
    std::optional<c10::InferenceMode> inference;
    if (inference_mode) inference.emplace();
    const at::NoGradGuard no_grad;
    elements.store();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void all_reduce(Group& group, const at::Tensor& tensor, const Reduction& how) {
  const Elements all(tensor);
  group.all_reduce(all.data(), all.data(), how.count(all), how.dtype, how.op);
  all.store();
}

void all_gather(Group& group, const Tensors& outputs, const at::Tensor& input) {
  const Elements mine(input);
  const auto all = elements_of(outputs);
  group.all_gather(mine.data(), places<void*>(all), mine.bytes());
  store_all(all);
}

void all_gather_rows(Group& group, const at::Tensor& output, const at::Tensor& input) {
  const Elements mine(input), all(output);
  group.all_gather(mine.data(), collective::rows(static_cast<void*>(all.data()), mine.bytes(), group.size()),
                   mine.bytes());
  all.store();
}

void reduce_scatter_list(Group& group, const at::Tensor& output, const Tensors& inputs, const Reduction& how) {
  const Elements mine(output);
  group.reduce_scatter(places<const void*>(elements_of(inputs)), mine.data(), how.count(mine), how.dtype, how.op);
  mine.store();
}

void reduce_scatter_rows(Group& group, const at::Tensor& output, const at::Tensor& input, const Reduction& how) {
  const Elements mine(output), all(input);
  const auto rows = collective::rows(static_cast<const void*>(all.data()), mine.bytes(), group.size());
  group.reduce_scatter(rows, mine.data(), how.count(mine), how.dtype, how.op);
  mine.store();
}

/// The parts of a tensor that go to or come from each rank: `splits` rows each, or equally many if it is empty.
template <class Piece>
std::vector<Piece> pieces(const Elements& elements, const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                          int world) {
  const std::size_t rows = static_cast<std::size_t>(tensor.dim() > 0 ? tensor.size(0) : tensor.numel());
  const std::size_t row = rows > 0 ? elements.bytes() / rows : 0;
  std::vector<Piece> list;
  std::size_t start = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world); ++rank) {
    const std::size_t count =
        splits.empty() ? rows / static_cast<std::size_t>(world) : static_cast<std::size_t>(splits[rank]);
    list.push_back({elements.data() + start, count * row});
    start += count * row;
  }
  return list;
}

}  // namespace

// ---- the group ----------------------------------------------------------------------------------------------------

SharedMemoryBackend::SharedMemoryBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         Timeout timeout, const collective::Place& place)
    : Backend(rank, size), timeout_(timeout) {
  PrefixedStore keys(store, rank);
  try {
    group_ = collective::join_group(keys, rank, size, {.timeout = timeout, .join_timeout = timeout}, place, [&] {
      return connect_by_gloo(keys.part("links"), rank, size, place.address, timeout);
    });
  } catch (const collective::CannotShareMemory&) {
    throw;
  } catch (const Error&) {
    std::rethrow_exception(as_c10d_error(std::current_exception()));
  }
  init();
}

SharedMemoryBackend::~SharedMemoryBackend() { queue_->close(); }

c10::intrusive_ptr<c10d::Backend::Options> SharedMemoryBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(kName, timeout_.load());
}

std::shared_ptr<SharedMemoryBackend::Group> SharedMemoryBackend::group() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

void SharedMemoryBackend::abort() {
  if (const auto current = group()) current->abort();
}

void SharedMemoryBackend::shutdown() {
  queue_->close();
  std::shared_ptr<Group> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving.swap(group_);
  }
  if (leaving && queue_->is_owner()) leaving->finish_sends(std::min<Timeout>(timeout_, kTimeForSends));
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::start(const Call& call, const Tensors& inputs, Tensors outputs,
                                                          Exchange exchange) {
  const Timeout timeout = call.timeout == c10d::kUnsetTimeout ? timeout_.load() : call.timeout;
  auto work = c10::make_intrusive<ExchangeWork>(rank_, call.type, call.title, inputs, std::move(outputs), number_++);
  auto job = [group = group(), timeout, exchange = std::move(exchange)]() {
    group->set_timeout(timeout);
    exchange(*group);
  };
  queue_->add(work, std::move(job), !call.async);
  return work;
}

// ---- collectives --------------------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Call call(c10d::OpType::BROADCAST, "lockstep:broadcast", options);
  c10d::assertRootRank(call.refuse(), options.rootRank, size_);
  c10d::assertSingleElement(call.refuse(), tensors);
  check_plain(call.refuse(), tensors);
  return start(call, tensors, tensors, [tensor = tensors[0], root = options.rootRank](Group& group) {
    const Elements all(tensor);
    group.broadcast(all.data(), all.bytes(), static_cast<int>(root));
    if (group.rank() != root) all.store();
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Call call(c10d::OpType::ALLREDUCE, "lockstep:all_reduce", options);
  c10d::assertSingleElement(call.refuse(), tensors);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  check_plain(call.refuse(), tensors);
  const auto how = reduction_of(call.title, tensors[0], options.reduceOp);
  return start(call, tensors, tensors, [tensor = tensors[0], how](Group& group) { all_reduce(group, tensor, how); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce_sparse(Tensors& tensors,
                                                                     const c10d::AllreduceOptions& options) {
  const Call call(c10d::OpType::_ALLREDUCE_SPARSE, "lockstep:all_reduce", options);
  c10d::assertSingleElement(call.refuse(), tensors);
  c10d::assertCPU(call.refuse(), tensors);
  const bool average = options.reduceOp == c10d::ReduceOp::AVG;
  if (!tensors[0].is_sparse() || (!average && options.reduceOp != c10d::ReduceOp::SUM))
    call.refuse()("sparse tensors must have the layout sparse_coo, and only their sum or average is supported");
  return start(call, tensors, tensors,
               [tensor = tensors[0], average](Group& group) { all_reduce_sparse(group, tensor, average); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const Call call(c10d::OpType::ALLREDUCE_COALESCED, "lockstep:all_reduce_coalesced", options);
  c10d::assertNonEmpty(call.refuse(), tensors);
  check_plain(call.refuse(), tensors);
  std::vector<Reduction> how;
  for (const auto& tensor : tensors) how.push_back(reduction_of(call.title, tensor, options.reduceOp));
  return start(call, tensors, tensors, [tensors, how = std::move(how)](Group& group) {
    for (std::size_t i = 0; i < tensors.size(); ++i) all_reduce(group, tensors[i], how[i]);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Call call(c10d::OpType::REDUCE, "lockstep:reduce", options);
  c10d::assertRootRank(call.refuse(), options.rootRank, size_);
  c10d::assertSingleElement(call.refuse(), tensors);
  check_plain(call.refuse(), tensors);
  const auto how = reduction_of(call.title, tensors[0], options.reduceOp);
  return start(call, tensors, tensors, [tensor = tensors[0], how, root = options.rootRank](Group& group) {
    const Elements all(tensor);
    group.reduce(all.data(), all.data(), how.count(all), how.dtype, how.op, static_cast<int>(root));
    if (group.rank() == root) all.store();
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  const Call call(c10d::OpType::ALLGATHER, "lockstep:all_gather", options);
  c10d::assertSingleElementInput(call.refuse(), inputs);
  if (outputs.size() != 1) call.refuse()("requires a single-element output list");
  check_plain(call.refuse(), inputs);
  check_list(call.refuse(), outputs[0], inputs[0], size_);
  return start(call, inputs, outputs[0],
               [list = outputs[0], input = inputs[0]](Group& group) { all_gather(group, list, input); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                    const c10d::AllgatherOptions& options) {
  const Call call(c10d::OpType::_ALLGATHER_BASE, "lockstep:all_gather_into_tensor", options);
  check_rows(call.refuse(), output, input, size_);
  return start(call, {input}, {output}, [output, input](Group& group) { all_gather_rows(group, output, input); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  const Call call(c10d::OpType::ALLGATHER_COALESCED, "lockstep:all_gather_coalesced", options);
  c10d::assertNonEmpty(call.refuse(), inputs);
  check_plain(call.refuse(), inputs);
  // outputs[rank][i] becomes that rank's inputs[i].
  c10d::assertAllgatherCoalescedOutputTensorLists(call.refuse(), outputs, inputs.size(), size_);
  Tensors all;
  for (const auto& list : outputs) {
    check_plain(call.refuse(), list);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      c10d::assertTypeAndSizesMatch(call.refuse(), {list[i]}, inputs[i].options(), inputs[i].sizes());
    all.insert(all.end(), list.begin(), list.end());
  }
  return start(call, inputs, std::move(all), [outputs, inputs](Group& group) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors list;
      for (const auto& of_rank : outputs) list.push_back(of_rank[i]);
      all_gather(group, list, inputs[i]);
    }
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const Call call(c10d::OpType::COALESCED, "lockstep:all_gather_into_tensor_coalesced", options);
  c10d::assertInputOutputTensorListsSameSize(call.refuse(), inputs.size(), outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_rows(call.refuse(), outputs[i], inputs[i], size_);
  return start(call, inputs, outputs, [outputs, inputs](Group& group) {
    for (std::size_t i = 0; i < inputs.size(); ++i) all_gather_rows(group, outputs[i], inputs[i]);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::GatherOptions& options) {
  const Call call(c10d::OpType::GATHER, "lockstep:gather", options);
  c10d::assertRootRank(call.refuse(), options.rootRank, size_);
  c10d::assertSingleElementInput(call.refuse(), inputs);
  check_plain(call.refuse(), inputs);
  Tensors list;
  if (rank_ == options.rootRank) {
    c10d::assertGatherOutputTensorList(call.refuse(), outputs, size_);
    check_list(call.refuse(), outputs[0], inputs[0], size_);
    list = outputs[0];
  } else {
    c10d::assertEmptyOutputTensorList(call.refuse(), outputs);
  }
  return start(call, inputs, list, [list, input = inputs[0], root = options.rootRank](Group& group) {
    const Elements mine(input);
    const auto all = elements_of(list);
    group.gather(mine.data(), places<void*>(all), mine.bytes(), static_cast<int>(root));
    store_all(all);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                            const c10d::ScatterOptions& options) {
  const Call call(c10d::OpType::SCATTER, "lockstep:scatter", options);
  c10d::assertRootRank(call.refuse(), options.rootRank, size_);
  c10d::assertSingleElementOutput(call.refuse(), outputs);
  check_plain(call.refuse(), outputs);
  Tensors list;
  if (rank_ == options.rootRank) {
    c10d::assertScatterInputTensorList(call.refuse(), inputs, size_);
    check_list(call.refuse(), inputs[0], outputs[0], size_);
    list = inputs[0];
  } else {
    c10d::assertEmptyInputTensorList(call.refuse(), inputs);
  }
  return start(call, list, outputs, [list, output = outputs[0], root = options.rootRank](Group& group) {
    const Elements mine(output);
    const auto all = elements_of(list);
    group.scatter(places<const void*>(all), mine.data(), mine.bytes(), static_cast<int>(root));
    mine.store();
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  const Call call(c10d::OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", options);
  c10d::assertSingleElementOutput(call.refuse(), outputs);
  if (inputs.size() != 1) call.refuse()("requires a single-element input list");
  check_plain(call.refuse(), outputs);
  check_list(call.refuse(), inputs[0], outputs[0], size_);
  const auto how = reduction_of(call.title, outputs[0], options.reduceOp);
  return start(call, inputs[0], outputs, [output = outputs[0], list = inputs[0], how](Group& group) {
    reduce_scatter_list(group, output, list, how);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                         const c10d::ReduceScatterOptions& options) {
  const Call call(c10d::OpType::_REDUCE_SCATTER_BASE, "lockstep:reduce_scatter_tensor", options);
  check_rows(call.refuse(), input, output, size_);
  const auto how = reduction_of(call.title, output, options.reduceOp);
  return start(call, {input}, {output},
               [output, input, how](Group& group) { reduce_scatter_rows(group, output, input, how); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const Call call(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "lockstep:reduce_scatter_tensor_coalesced", options);
  c10d::assertInputOutputTensorListsSameSize(call.refuse(), inputs.size(), outputs.size());
  std::vector<Reduction> how;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_rows(call.refuse(), inputs[i], outputs[i], size_);
    how.push_back(reduction_of(call.title, outputs[i], options.reduceOp));
  }
  return start(call, inputs, outputs, [outputs, inputs, how = std::move(how)](Group& group) {
    for (std::size_t i = 0; i < inputs.size(); ++i) reduce_scatter_rows(group, outputs[i], inputs[i], how[i]);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                  std::vector<std::int64_t>& output_splits,
                                                                  std::vector<std::int64_t>& input_splits,
                                                                  const c10d::AllToAllOptions& options) {
  const Call call(c10d::OpType::ALLTOALL_BASE, "lockstep:all_to_all", options);
  check_plain(call.refuse(), {output, input});
  if (output.scalar_type() != input.scalar_type()) call.refuse()("the tensors are of different types");
  c10d::checkSplitSizes(output_splits, output, size_);
  c10d::checkSplitSizes(input_splits, input, size_);
  for (const auto& splits : {output_splits, input_splits})
    if (std::ranges::any_of(splits, [](std::int64_t rows) { return rows < 0; })) call.refuse()("a split is negative");
  return start(call, {input}, {output}, [output, input, output_splits, input_splits](Group& group) {
    const Elements given(input), taken(output);
    group.all_to_all(pieces<ConstBuffer>(given, input, input_splits, group.size()),
                     pieces<Buffer>(taken, output, output_splits, group.size()));
    taken.store();
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                             const c10d::AllToAllOptions& options) {
  const Call call(c10d::OpType::ALLTOALL, "lockstep:all_to_all", options);
  c10d::assertAllToAllTensorListSizes(call.refuse(), inputs.size(), outputs.size(), static_cast<std::size_t>(size_));
  check_plain(call.refuse(), inputs);
  check_plain(call.refuse(), outputs);
  return start(call, inputs, outputs, [outputs, inputs](Group& group) {
    const auto given = elements_of(inputs), taken = elements_of(outputs);
    std::vector<ConstBuffer> in;
    std::vector<Buffer> out;
    for (const auto& each : given) in.push_back({each.data(), each.bytes()});
    for (const auto& each : taken) out.push_back({each.data(), each.bytes()});
    group.all_to_all(in, out);
    store_all(taken);
  });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::barrier(const c10d::BarrierOptions& options) {
  const Call call(c10d::OpType::BARRIER, "lockstep:barrier", options);
  return start(call, {}, {}, [](Group& group) { group.barrier(); });
}

// ---- messages -----------------------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::send(Tensors& tensors, int to, int tag) {
  const Call call(c10d::OpType::SEND, "lockstep:send");
  c10d::assertSingleElement(call.refuse(), tensors);
  check_plain(call.refuse(), tensors);
  const at::NoGradGuard no_grad;
  const Elements whole(tensors[0]);
  auto work = c10::make_intrusive<ExchangeWork>(rank_, call.type, call.title, tensors, Tensors{}, 0);
  auto done = [work, whole, queue = queue_](const std::exception_ptr& error, int) { queue->end(work, error, -1); };
  post([&](Group& group) {
    group.post_send({whole.data(), whole.bytes(), to, tag, timeout_.load()}, std::move(done));
  });
  return work;
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::recv(Tensors& tensors, int from, int tag) {
  return receive({c10d::OpType::RECV, "lockstep:recv"}, tensors, from, tag);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive({c10d::OpType::RECVANYSOURCE, "lockstep:recv_any"}, tensors, collective::kAnySource, tag);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::receive(const Call& call, Tensors& tensors, int from, int tag) {
  c10d::assertSingleElement(call.refuse(), tensors);
  check_plain(call.refuse(), tensors);
  const at::NoGradGuard no_grad;
  const Elements whole(tensors[0]);
  auto work = c10::make_intrusive<ExchangeWork>(rank_, call.type, call.title, tensors, tensors, 0);
  auto done = [work, whole, queue = queue_, mode = c10::InferenceMode::is_enabled()](const std::exception_ptr& error,
                                                                                     int source) {
    queue->end(work, stored(whole, mode, error), source);
  };
  post([&](Group& group) {
    group.post_receive({whole.data(), whole.bytes(), from, tag, timeout_.load()}, std::move(done));
  });
  return work;
}

template <class Post>
void SharedMemoryBackend::post(const Post& post) const {
  const auto current = group();
  TORCH_CHECK(current, "this process group was shut down; make a new one");
  try {
    post(*current);
  } catch (const ConfigError& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

}  // namespace lockstep::torch
