// all_reduce, reduce and reduce_scatter of a group on several nodes.

#include <algorithm>

#include "collective/reduce.h"
#include "collective/spanning_parts.h"

namespace lockstep::collective {
namespace {

/// What one division of elements into equal parts gives part `index`.
struct Part {
  std::size_t start = 0;
  std::size_t count = 0;
};

/// Parts but the last ones begin at a multiple of so many elements, so that they are aligned for staging.
constexpr std::size_t kUnit = 64;

Part part_of(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t each = ((count + parts - 1) / parts + kUnit - 1) / kUnit * kUnit;
  const std::size_t start = std::min(count, index * each);
  return {start, std::min(each, count - start)};
}

/// On one node, and as long as there is more to combine, an average is a sum.
ReduceOp partial(ReduceOp op) { return op == ReduceOp::avg ? ReduceOp::sum : op; }

}  // namespace

struct SpanningGroup::Reduction {
  const void* in;
  void* out;
  std::size_t count;
  DType dtype;
  ReduceOp op;
  int root;  ///< -1: all

  DType wide = accumulator_of(dtype);
  std::size_t width = size_of(dtype);      ///< of an element
  std::size_t wide_width = size_of(wide);  ///< of an element that is being combined
  std::size_t chunk_count = 0;             ///< elements of a chunk

  /// A chunk on its way between the nodes; up to three are at a time.
  struct Flight {
    std::vector<std::byte> partial;   ///< this node's combination of this rank's part
    std::vector<std::byte> incoming;  ///< those of the other nodes, of this node's slice of the part
    std::vector<std::byte> result;    ///< the chunk, if it does not belong into `out`
    std::vector<Links::Pending> transfers;
  };
  std::array<Flight, 3> flights{};

  Part elements(std::size_t chunk) const {
    const std::size_t start = chunk * chunk_count;
    return {start, std::min(chunk_count, count - start)};
  }
};

void SpanningGroup::all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op) {
  call(intent_of(CallKind::all_reduce, count, dtype, op), [&] {
    Reduction job{in, out, count, dtype, op, -1};
    reduce_any(job);
  });
}

void SpanningGroup::reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) {
  check_root(*this, root);
  call(intent_of(CallKind::reduce, count, dtype, op, root), [&] {
    Reduction job{in, out, count, dtype, op, root};
    reduce_any(job);
  });
}

void SpanningGroup::reduce_any(Reduction& job) {
  if (job.count * job.wide_width <= kSmall)
    reduce_small(job);
  else
    reduce_in_chunks(job);
}

/// The elements travel with the greeting.
void SpanningGroup::reduce_small(Reduction& job) {
  alignas(kCacheLine) std::array<std::byte, kSmall> mine{}, wide{};
  const void* in = job.in;
  if (job.wide != job.dtype) {
    widen(reinterpret_cast<float*>(wide.data()), in, job.count, job.dtype);
    in = wide.data();
  }
  local_->reduce(in, mine.data(), job.count, job.wide, partial(job.op), 0);
  greet({mine.data(), job.count * job.wide_width});
  alignas(kCacheLine) std::array<std::byte, kSmall> result{};
  agree({result.data(), job.count * job.width}, [&] {
    std::vector<const void*> sources;
    for (const auto& hello : hellos_) sources.push_back(hello->payload.data());
    reduce_partial(result.data(), sources, job.count, job.dtype, job.op, static_cast<std::size_t>(size()));
  });
  if ((job.root < 0 || job.root == rank_) && job.count > 0) std::memcpy(job.out, result.data(), job.count * job.width);
}

/// While the network carries one chunk, the ranks of the node combine the next one.
void SpanningGroup::reduce_in_chunks(Reduction& job) {
  job.chunk_count = std::max(chunk_bytes_ / job.wide_width, kUnit);
  const std::size_t chunks = (job.count + job.chunk_count - 1) / job.chunk_count;
  greet();
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) {
      combine_on_node(job, step);
      if (step == 0) agree();
      exchange_partials(job, step);
    }
    if (step >= 1 && step <= chunks) exchange_results(job, step - 1);
    if (step >= 2) share_on_node(job, step - 2);
  }
}

void SpanningGroup::combine_on_node(Reduction& job, std::size_t chunk) {
  const Part all = job.elements(chunk);
  const void* in = at(job.in, all.start * job.width);
  if (job.wide != job.dtype) {
    wide_.resize(all.count * job.wide_width);
    widen(reinterpret_cast<float*>(wide_.data()), in, all.count, job.dtype);
    in = wide_.data();
  }
  std::vector<const void*> parts;
  std::vector<std::size_t> counts;
  for (int each = 0; each < local_->size(); ++each) {
    const Part part = each < carriers_ ? part_of(all.count, static_cast<std::size_t>(carriers_), each) : Part{};
    parts.push_back(at(in, part.start * job.wide_width));
    counts.push_back(part.count);
  }
  auto& flight = job.flights[chunk % 3];
  flight.partial.resize(counts[place()] * job.wide_width);
  local_->reduce_scatter_parts(parts, flight.partial.data(), counts, job.wide, partial(job.op));
}

void SpanningGroup::exchange_partials(Reduction& job, std::size_t chunk) {
  if (place() >= carriers_) return;
  const Part part = part_of(job.elements(chunk).count, static_cast<std::size_t>(carriers_), place());
  const auto slice_of = [&](int of) { return part_of(part.count, static_cast<std::size_t>(nodes_.count()), of); };
  const std::size_t mine = slice_of(node()).count * job.wide_width;
  auto& flight = job.flights[chunk % 3];
  flight.incoming.resize(mine * nodes_.ranks.size());
  for (int each = 0; each < nodes_.count(); ++each) {
    if (each == node()) continue;
    flight.transfers.push_back(receive(flight.incoming.data() + each * mine, mine, counterpart(each), kPartials));
    const Part slice = slice_of(each);
    flight.transfers.push_back(send(flight.partial.data() + slice.start * job.wide_width, slice.count * job.wide_width,
                                    counterpart(each), kPartials));
  }
}

void SpanningGroup::exchange_results(Reduction& job, std::size_t chunk) {
  auto& flight = job.flights[chunk % 3];
  const Part all = job.elements(chunk);
  const bool wanted = job.root < 0 || job.root == rank_;
  if (!wanted) flight.result.resize(all.count * job.width);
  if (place() >= carriers_) return;
  wait_all(flight.transfers);
  const Part part = part_of(all.count, static_cast<std::size_t>(carriers_), place());
  const auto slice_of = [&](int of) { return part_of(part.count, static_cast<std::size_t>(nodes_.count()), of); };
  const Part mine = slice_of(node());
  std::byte* result = wanted ? at(job.out, all.start * job.width) : flight.result.data();
  const auto place_of = [&](const Part& slice) { return result + (part.start + slice.start) * job.width; };
  std::vector<const void*> sources;
  for (int each = 0; each < nodes_.count(); ++each)
    sources.push_back(each == node() ? flight.partial.data() + mine.start * job.wide_width
                                     : flight.incoming.data() + each * mine.count * job.wide_width);
  reduce_partial(place_of(mine), sources, mine.count, job.dtype, job.op, static_cast<std::size_t>(size()));
  const int root_node = job.root < 0 ? -1 : nodes_.node_of[job.root];
  for (int each = 0; each < nodes_.count(); ++each) {
    if (each == node()) continue;
    const Part slice = slice_of(each);
    if (root_node < 0 || root_node == node())
      flight.transfers.push_back(receive(place_of(slice), slice.count * job.width, counterpart(each), kResults));
    if (root_node < 0 || root_node == each)
      flight.transfers.push_back(send(place_of(mine), mine.count * job.width, counterpart(each), kResults));
  }
}

void SpanningGroup::share_on_node(Reduction& job, std::size_t chunk) {
  auto& flight = job.flights[chunk % 3];
  wait_all(flight.transfers);
  if (job.root >= 0 && nodes_.node_of[job.root] != node()) return;
  const Part all = job.elements(chunk);
  const bool wanted = job.root < 0 || job.root == rank_;
  std::byte* result = wanted ? at(job.out, all.start * job.width) : flight.result.data();
  std::vector<void*> parts;
  std::vector<std::size_t> bytes;
  for (int each = 0; each < local_->size(); ++each) {
    const Part part = each < carriers_ ? part_of(all.count, static_cast<std::size_t>(carriers_), each) : Part{};
    parts.push_back(result + part.start * job.width);
    bytes.push_back(part.count * job.width);
  }
  local_->all_gather_parts(parts[place()], parts, bytes);
}

void SpanningGroup::reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype,
                                   ReduceOp op) {
  check_parts(*this, in.size(), "input");
  call(intent_of(CallKind::reduce_scatter, count, dtype, op), [&] {
    greet();
    agree();
    const std::size_t bytes = count * size_of(accumulator_of(dtype));
    std::vector<std::byte> incoming(bytes * nodes_.ranks.size());
    std::vector<Links::Pending> transfers;
    for (int each = 0; each < nodes_.count(); ++each)
      if (each != node())
        transfers.push_back(receive(incoming.data() + each * bytes, bytes, counterpart(each), kPartials));
    // In turn, each rank of this node combines what is for one rank of another node, and sends it there.
    std::vector<std::vector<std::byte>> partials;
    const int here = local_->size();
    for (int each = 0; each < nodes_.count(); ++each) {
      const std::vector<int>& there = nodes_.ranks[each];
      for (int first = 0; first < static_cast<int>(there.size()); first += here) {
        const auto targets = std::span(there).subspan(first, std::min<std::size_t>(here, there.size() - first));
        auto& made = partials.emplace_back(bytes);
        reduce_block(targets, in, each == node() ? incoming.data() + each * bytes : made.data(), count, dtype, op);
        if (each != node() && place() < static_cast<int>(targets.size()))
          transfers.push_back(send(made.data(), bytes, targets[place()], kPartials));
      }
    }
    wait_all(transfers);
    std::vector<const void*> sources;
    for (int each = 0; each < nodes_.count(); ++each) sources.push_back(incoming.data() + each * bytes);
    reduce_partial(out, sources, count, dtype, op, static_cast<std::size_t>(size()));
  });
}

/// out = this node's combination of what is for targets[place()]; nothing if there are fewer.
void SpanningGroup::reduce_block(std::span<const int> targets, std::span<const void* const> in, void* out,
                                 std::size_t count, DType dtype, ReduceOp op) {
  const DType wide = accumulator_of(dtype);
  if (wide != dtype) wide_.resize(targets.size() * count * size_of(wide));
  std::vector<const void*> inputs;
  std::vector<std::size_t> counts;
  for (std::size_t each = 0; each < static_cast<std::size_t>(local_->size()); ++each) {
    counts.push_back(each < targets.size() ? count : 0);
    const void* input = each < targets.size() ? in[targets[each]] : nullptr;
    if (input != nullptr && wide != dtype) {
      auto* space = wide_.data() + each * count * size_of(wide);
      widen(reinterpret_cast<float*>(space), input, count, dtype);
      input = space;
    }
    inputs.push_back(input);
  }
  local_->reduce_scatter_parts(inputs, out, counts, wide, partial(op));
}

}  // namespace lockstep::collective
