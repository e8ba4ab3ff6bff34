#include "torch/backend.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

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

  /// For c10d's checks of arguments, which tell what is wrong.
  std::function<void(const std::string&)> refuse() const {
    return [this](const std::string& what) { C10_THROW_ERROR(ValueError, "[" + std::string(title) + "] " + what); };
  }
};

namespace {

using collective::ConstPart;
using collective::DType;
using collective::Part;
using Tensors = SharedMemoryBackend::Tensors;
using Group = collective::Communicator;

/// How long shutdown() waits for messages to be taken.
constexpr std::chrono::seconds kTimeForSends{30};

/// The few words that ranks exchange to find each other. A store may outlive the group, and see another one under the
/// same name: each rank counts the groups that it has joined there.
class StoreRendezvous final : public collective::Rendezvous {
 public:
  StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, int rank)
      : store_(std::move(store)),
        prefix_("lockstep/" + std::to_string(store_->add("lockstep/groups_of/" + std::to_string(rank), 1)) + "/") {}
  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    store_->wait({prefix_ + key}, timeout);
    return store_->get_to_str(prefix_ + key);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
};

/// A tensor's elements in one piece: its own memory where they lie so, else a copy.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : tensor_(tensor), dense_(tensor.resolve_conj().resolve_neg().contiguous()) {}

  std::byte* data() const { return static_cast<std::byte*>(dense_.data_ptr()); }
  std::size_t bytes() const { return dense_.nbytes(); }
  std::size_t size() const { return static_cast<std::size_t>(dense_.numel()); }
  /// Brings what was written to data() into the tensor.
  void store() const {
    if (!dense_.is_same(tensor_)) tensor_.copy_(dense_);
  }

 private:
  at::Tensor tensor_, dense_;
};

/// Brings what was received into the tensor, unless there was an error; or the error of doing so.
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

std::vector<Elements> elements_of(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

/// Where the elements of several tensors lie.
template <class Pointer>
std::vector<Pointer> places(const std::vector<Elements>& list) {
  std::vector<Pointer> pointers;
  pointers.reserve(list.size());
  for (const auto& each : list) pointers.push_back(each.data());
  return pointers;
}

void store_all(const std::vector<Elements>& list) {
  for (const auto& each : list) each.store();
}

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kComplexFloat:
      return DType::float32;
    case at::kDouble:
    case at::kComplexDouble:
      return DType::float64;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kHalf:
      return DType::float16;
    case at::kChar:
      return DType::int8;
    case at::kShort:
      return DType::int16;
    case at::kInt:
      return DType::int32;
    case at::kLong:
      return DType::int64;
    case at::kByte:
      return DType::uint8;
    case at::kUInt16:
      return DType::uint16;
    case at::kUInt32:
      return DType::uint32;
    case at::kUInt64:
      return DType::uint64;
    case at::kBool:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

std::optional<collective::ReduceOp> op_of(c10d::ReduceOp::RedOpType op) {
  using collective::ReduceOp;
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    default:
      return std::nullopt;
  }
}

/// How elements are combined. A complex number is two.
struct Reduction {
  DType dtype;
  collective::ReduceOp op;
  std::size_t parts = 1;

  std::size_t count(const Elements& elements) const { return elements.size() * parts; }
};

/// Throws when it means nothing.
Reduction reduction_of(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  using collective::ReduceOp;
  const auto type = dtype_of(tensor.scalar_type());
  const auto how = op_of(op);
  TORCH_CHECK_TYPE(type, "[", what, "] cannot combine elements of type ", tensor.scalar_type(),
                   "; convert the tensor to another type");
  const bool known = how && collective::supported(*type, *how);
  TORCH_CHECK_VALUE(known && (!tensor.is_complex() || how == ReduceOp::sum || how == ReduceOp::avg), "[", what,
                    "] this operation means nothing for elements of type ", tensor.scalar_type(),
                    "; use ReduceOp.SUM, or another type");
  return {*type, *how, tensor.is_complex() ? std::size_t{2} : std::size_t{1}};
}

void check_plain(const std::function<void(const std::string&)>& refuse, const at::ArrayRef<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    c10d::assertCPU(refuse, {tensor});
    c10d::assertDense(refuse, {tensor});
  }
}

/// One tensor for every rank, each like `one`.
void check_list(const std::function<void(const std::string&)>& refuse, const Tensors& list, const at::Tensor& one,
                int world) {
  if (list.size() != static_cast<std::size_t>(world))
    refuse("a list of " + std::to_string(list.size()) + " tensors in a group of " + std::to_string(world) +
           "; give one for every rank");
  check_plain(refuse, list);
  c10d::assertTypeAndSizesMatch(refuse, list, one.options(), one.sizes());
}

/// `many` holds `one` for every rank.
void check_rows(const std::function<void(const std::string&)>& refuse, const at::Tensor& many, const at::Tensor& one,
                int world) {
  check_plain(refuse, {many, one});
  if (many.scalar_type() != one.scalar_type() || many.numel() != one.numel() * world)
    refuse("a tensor of " + std::to_string(many.numel()) + " " + c10::toString(many.scalar_type()) + " and one of " +
           std::to_string(one.numel()) + " " + c10::toString(one.scalar_type()) + " in a group of " +
           std::to_string(world) + "; the first must be as large as " + std::to_string(world) + " of the second");
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

/// Every rank's tensor; `counts` is how many rows each has.
Tensors gather_unequal(Group& group, const at::Tensor& mine, const std::vector<std::int64_t>& counts, int along) {
  const Elements own(mine);
  const std::vector<ConstPart> in(counts.size(), ConstPart{own.data(), own.bytes()});
  Tensors all;
  std::vector<Part> out;
  for (const auto count : counts) {
    auto shape = mine.sizes().vec();
    shape[static_cast<std::size_t>(along)] = count;
    all.push_back(at::empty(shape, mine.options()));
    out.push_back({all.back().data_ptr(), all.back().nbytes()});
  }
  group.all_to_all(in, out);
  return all;
}

/// What a rank's sparse tensor is, in words that can be gathered.
using SparseShape = std::array<std::int64_t, 16>;

SparseShape shape_of(const at::Tensor& tensor) {
  SparseShape shape{};
  TORCH_CHECK_VALUE(tensor.dim() <= 13, "[lockstep:all_reduce] a sparse tensor of ", tensor.dim(),
                    " dimensions; there may be 13");
  shape[0] = tensor.sparse_dim();
  shape[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.begin() + 2);
  shape.back() = tensor._nnz();
  return shape;
}

/// Each rank may have other indices: all get all, and add what stands at the same ones.
void all_reduce_sparse(Group& group, const at::Tensor& tensor, bool average) {
  const at::Tensor mine = tensor.coalesce();
  const SparseShape shape = shape_of(mine);
  std::vector<SparseShape> shapes(static_cast<std::size_t>(group.size()));
  group.all_gather(shape.data(), collective::rows(static_cast<void*>(shapes.data()), sizeof shape, group.size()),
                   sizeof shape);
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    if (!std::equal(shape.begin(), shape.end() - 1, shapes[rank].begin()))
      throw ConfigError("[lockstep:all_reduce] the sparse tensors of ranks " + std::to_string(group.rank()) + " and " +
                        std::to_string(rank) + " have other shapes; give all ranks the same");
    counts.push_back(shapes[rank].back());
  }
  const auto indices = gather_unequal(group, mine.indices(), counts, 1);
  const auto values = gather_unequal(group, mine.values(), counts, 0);
  // The indices come from tensors that were checked.
  at::Tensor sum =
      at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values, 0), tensor.sizes(), tensor.options())
          .coalesce();
  if (average) sum.div_(group.size());
  tensor.copy_(sum);
}

/// The parts of a tensor that go to, or come from, each rank: `splits` rows each, or as many for all.
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
                                         Timeout timeout)
    : Backend(rank, size), timeout_(timeout) {
  StoreRendezvous rendezvous(store, rank);
  try {
    group_ = Group::join(rendezvous, rank, size, {.timeout = timeout, .join_timeout = timeout});
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
  if (leaving && queue_->is_owner()) leaving->mail().finish_sends(std::min<Timeout>(timeout_, kTimeForSends));
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
    call.refuse()("sparse tensors are of layout sparse_coo, and only their sum or average is known");
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
  // outputs[rank][i] is what that rank's inputs[i] is.
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
    group.all_to_all(pieces<ConstPart>(given, input, input_splits, group.size()),
                     pieces<Part>(taken, output, output_splits, group.size()));
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
    std::vector<ConstPart> in;
    std::vector<Part> out;
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
  post([&](collective::Mailbox& mail) {
    mail.post_send({whole.data(), whole.bytes(), to, tag, timeout_.load()}, std::move(done));
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
  post([&](collective::Mailbox& mail) {
    mail.post_receive({whole.data(), whole.bytes(), from, tag, timeout_.load()}, std::move(done));
  });
  return work;
}

template <class Post>
void SharedMemoryBackend::post(const Post& post) const {
  const auto current = group();
  TORCH_CHECK(current, "this process group was shut down; make a new one");
  try {
    post(current->mail());
  } catch (const ConfigError& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

}  // namespace lockstep::torch
