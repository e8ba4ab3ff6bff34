// The collectives: what a Communicator does in rounds.

#include <lockstep/error.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "collective/bytes.h"
#include "collective/communicator.h"
#include "collective/reduce.h"
#include "collective/staging.h"

namespace lockstep::collective {
namespace {

/// Bytes that are combined and then copied while they are in the first-level cache.
constexpr std::size_t kReduceBlock = std::size_t{8} << 10;

constexpr std::size_t align_down(std::size_t bytes) { return bytes / kCacheLine * kCacheLine; }
constexpr std::size_t align_up(std::size_t bytes) { return align_down(bytes + kCacheLine - 1); }

}  // namespace

// ---- calls --------------------------------------------------------------------------------------------------------

template <class Body>
void Communicator::call(const Intent& intent, const Body& body) {
  if (together_) return body();
  check_member(*region_, rank_);
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(broken_);
  number_ += 1;
  intent_ = intent;
  compared_ = false;
  try {
    if (const auto fault = region_->fault()) throw_fault(*region_, rank_, *fault, occasion());
    body();
  } catch (...) {
    broken_ = std::current_exception();
    throw;
  }
}

void Communicator::together(const Intent& intent, const std::function<void()>& body) {
  call(intent, [&] {
    struct Together {
      bool& on;
      explicit Together(bool& flag) : on(flag) { on = true; }
      ~Together() { on = false; }
    } together(together_);
    body();
  });
}

Occasion Communicator::occasion() const { return {to_string(intent_.kind), number_, timeout_.load(), grace_}; }

void Communicator::arrive() {
  if (!compared_) region_->rank(rank_).intents[rounds_->next() % kSlots] = intent_;
  rounds_->arrive();
}

std::uint32_t Communicator::wait() {
  const std::uint32_t round = rounds_->wait(occasion());
  if (!compared_) compare_intents(round);
  return round;
}

std::uint32_t Communicator::meet() {
  arrive();
  return wait();
}

void Communicator::compare_intents(std::uint32_t round) {
  compared_ = true;
  for (int rank = 0; rank < size(); ++rank) {
    const Intent& other = region_->rank(rank).intents[round % kSlots];
    if (other != intent_) throw_different(number_, region_->number(rank_), intent_, region_->number(rank), other);
  }
}

// ---- collectives --------------------------------------------------------------------------------------------------

void Communicator::barrier() {
  call(intent_of(CallKind::barrier, 0), [&] { meet(); });
}

void Communicator::all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op) {
  call(intent_of(CallKind::all_reduce, count, dtype, op), [&] {
    if (size() == 1 || count * size_of(dtype) <= at_once_)
      reduce_at_once(in, out, count, dtype, op, -1);
    else
      reduce_by_slices(in, out, count, dtype, op, -1);
  });
}

void Communicator::reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) {
  check_root(*this, root);
  call(intent_of(CallKind::reduce, count, dtype, op, root), [&] {
    if (size() == 1 || count * size_of(dtype) <= at_once_)
      reduce_at_once(in, out, count, dtype, op, root);
    else
      reduce_by_slices(in, out, count, dtype, op, root);
  });
}

/// Every rank that needs the result (`root`, or all if it is -1) combines all elements.
void Communicator::reduce_at_once(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) {
  if (size() > 1) copy_to_staging(own_slot(), in, count * size_of(dtype));
  const std::uint32_t round = meet();
  if (root >= 0 && root != rank_) return;
  for (int rank = 0; rank < size(); ++rank) sources_[rank] = region_->slot(rank, round);
  if (size() == 1) sources_[0] = in;
  collective::reduce(out, sources_, count, dtype, op);
}

/// Chunk by chunk: each rank gives the others their slices, combines its own, and publishes the result. A slot holds
/// the slices of a chunk, followed by the result of the previous chunk, so that each chunk takes only one round.
void Communicator::reduce_by_slices(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) {
  const auto world = static_cast<std::size_t>(size());
  const std::size_t total = count * size_of(dtype);
  const std::size_t most = align_down(chunk_ / (world + 1));
  const std::size_t chunks = (total + most * world - 1) / (most * world);
  const std::size_t slice = align_up((total + chunks * world - 1) / (chunks * world));
  // Start and size of the slice of `rank` in a chunk; the last slices may be short or empty.
  const auto start_of = [&](std::size_t chunk, std::size_t rank) {
    return std::min((chunk * world + rank) * slice, total);
  };
  const auto size_of_slice = [&](std::size_t chunk, std::size_t rank) {
    return std::min(slice, total - start_of(chunk, rank));
  };
  const auto self = static_cast<std::size_t>(rank_);
  const bool wanted = root < 0 || root == rank_;
  const auto give = [&](std::size_t chunk) {
    if (chunk >= chunks) return;
    for (std::size_t rank = 0; rank < world; ++rank)
      if (rank != self)
        copy_to_staging(own_slot() + rank * slice, at(in, start_of(chunk, rank)), size_of_slice(chunk, rank));
  };
  give(0);
  for (std::size_t chunk = 0; chunk <= chunks; ++chunk) {
    arrive();
    give(chunk + 1);
    const std::uint32_t round = wait();
    if (chunk > 0 && wanted)
      for (std::size_t rank = 0; rank < world; ++rank)
        if (rank != self)
          copy_bytes(at(out, start_of(chunk - 1, rank)), region_->slot(static_cast<int>(rank), round) + world * slice,
                     size_of_slice(chunk - 1, rank));
    if (chunk == chunks) break;
    std::byte* result = own_slot() + world * slice;
    const std::size_t start = start_of(chunk, self);
    const std::size_t bytes = size_of_slice(chunk, self);
    for (std::size_t done = 0; done < bytes; done += kReduceBlock) {
      const std::size_t block = std::min(kReduceBlock, bytes - done);
      for (std::size_t rank = 0; rank < world; ++rank)
        sources_[rank] =
            rank == self ? at(in, start + done) : region_->slot(static_cast<int>(rank), round) + self * slice + done;
      std::byte* first = wanted ? at(out, start + done) : result + done;
      collective::reduce(first, sources_, block / size_of(dtype), dtype, op);
      if (root != rank_ && first != result + done) copy_to_staging(result + done, first, block);
    }
  }
}

void Communicator::reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype,
                                  ReduceOp op) {
  reduce_scatter_parts(in, out, std::vector<std::size_t>(static_cast<std::size_t>(size()), count), dtype, op);
}

void Communicator::reduce_scatter_parts(std::span<const void* const> in, void* out, std::span<const std::size_t> counts,
                                        DType dtype, ReduceOp op) {
  check_parts(*this, in.size(), "input");
  check_parts(*this, counts.size(), "count");
  call(intent_of(CallKind::reduce_scatter, counts.front(), dtype, op), [&] {
    const std::size_t longest = *std::max_element(counts.begin(), counts.end()) * size_of(dtype);
    const std::size_t most = align_down(chunk_ / in.size());
    std::size_t start = 0;
    do {
      const auto bytes_of = [&](int rank) {
        const std::size_t total = counts[rank] * size_of(dtype);
        return std::min(most, total - std::min(start, total));
      };
      for (int rank = 0; rank < size(); ++rank)
        if (rank != rank_ && bytes_of(rank) > 0)
          copy_to_staging(own_slot() + rank * most, at(in[rank], start), bytes_of(rank));
      const std::uint32_t round = meet();
      if (const std::size_t bytes = bytes_of(rank_); bytes > 0) {
        for (int rank = 0; rank < size(); ++rank)
          sources_[rank] = rank == rank_ ? at(in[rank], start) : region_->slot(rank, round) + rank_ * most;
        collective::reduce(at(out, start), sources_, bytes / size_of(dtype), dtype, op);
      }
      start += most;
    } while (start < longest);
  });
}

void Communicator::broadcast(void* data, std::size_t bytes, int root) {
  check_root(*this, root);
  call(intent_of(CallKind::broadcast, bytes, root), [&] {
    std::size_t start = 0;
    do {
      const std::size_t part = std::min(chunk_, bytes - start);
      if (rank_ == root && size() > 1) copy_to_staging(own_slot(), at(data, start), part);
      const std::uint32_t round = meet();
      if (rank_ != root) copy_bytes(at(data, start), region_->slot(root, round), part);
      start += part;
    } while (start < bytes);
  });
}

void Communicator::all_gather(const void* in, std::span<void* const> out, std::size_t bytes) {
  all_gather_parts(in, out, std::vector<std::size_t>(static_cast<std::size_t>(size()), bytes));
}

void Communicator::all_gather_parts(const void* in, std::span<void* const> out, std::span<const std::size_t> bytes) {
  check_parts(*this, out.size(), "output");
  check_parts(*this, bytes.size(), "size");
  call(intent_of(CallKind::all_gather, bytes.front()), [&] { gather_to(in, out, bytes, -1); });
}

void Communicator::gather(const void* in, std::span<void* const> out, std::size_t bytes, int root) {
  check_root(*this, root);
  if (rank_ == root) check_parts(*this, out.size(), "output");
  call(intent_of(CallKind::gather, bytes, root),
       [&] { gather_to(in, out, std::vector<std::size_t>(static_cast<std::size_t>(size()), bytes), root); });
}

/// `root` -1: to all.
void Communicator::gather_to(const void* in, std::span<void* const> out, std::span<const std::size_t> bytes, int root) {
  const bool wanted = root < 0 || root == rank_;
  const std::size_t longest = *std::max_element(bytes.begin(), bytes.end());
  std::size_t start = 0;
  do {
    const auto part_of = [&](int rank) { return std::min(chunk_, bytes[rank] - std::min(start, bytes[rank])); };
    if (rank_ != root && size() > 1 && part_of(rank_) > 0) copy_to_staging(own_slot(), at(in, start), part_of(rank_));
    const std::uint32_t round = meet();
    // Copy the own part first: `in` may be where another rank's part goes.
    if (wanted && part_of(rank_) > 0) copy_bytes(at(out[rank_], start), at(in, start), part_of(rank_));
    for (int rank = 0; wanted && rank < size(); ++rank)
      if (rank != rank_ && part_of(rank) > 0)
        copy_bytes(at(out[rank], start), region_->slot(rank, round), part_of(rank));
    start += chunk_;
  } while (start < longest);
}

void Communicator::scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root) {
  check_root(*this, root);
  if (rank_ == root) check_parts(*this, in.size(), "input");
  call(intent_of(CallKind::scatter, bytes, root), [&] {
    const std::size_t most = align_down(chunk_ / static_cast<std::size_t>(size()));
    std::size_t start = 0;
    do {
      const std::size_t part = std::min(most, bytes - start);
      for (int rank = 0; rank_ == root && rank < size(); ++rank)
        if (rank != rank_) copy_to_staging(own_slot() + rank * most, at(in[rank], start), part);
      const std::uint32_t round = meet();
      // Copy root's own part last: `out` may be where another rank's part was.
      copy_bytes(at(out, start), rank_ == root ? at(in[rank_], start) : region_->slot(root, round) + rank_ * most,
                 part);
      start += part;
    } while (start < bytes);
  });
}

void Communicator::all_to_all(std::span<const ConstBuffer> in, std::span<const Buffer> out) {
  check_parts(*this, in.size(), "input");
  check_parts(*this, out.size(), "output");
  call(intent_of(CallKind::all_to_all, 0), [&] { exchange(in, out); });
}

/// The first round exchanges the sizes, so that all ranks know how many rounds follow.
void Communicator::exchange(std::span<const ConstBuffer> in, std::span<const Buffer> out) {
  const std::size_t row = in.size() * sizeof(std::uint64_t);
  std::vector<std::uint64_t> sizes(in.size());
  for (std::size_t rank = 0; rank < in.size(); ++rank) sizes[rank] = in[rank].bytes;
  copy_to_staging(own_slot(), sizes.data(), row);
  std::uint32_t round = meet();
  std::size_t longest = 0;
  for (int from = 0; from < size(); ++from) {
    std::memcpy(sizes.data(), region_->slot(from, round), row);
    longest = std::max<std::size_t>(longest, *std::max_element(sizes.begin(), sizes.end()));
    if (sizes[rank_] == out[from].bytes) continue;
    abort();  // the others have not noticed a fault
    throw ConfigError("[collective] all_to_all: rank " + std::to_string(from) + " gives rank " + std::to_string(rank_) +
                      " " + std::to_string(sizes[rank_]) + " bytes, which expects " + std::to_string(out[from].bytes) +
                      "; give both the same size");
  }
  const std::size_t most = align_down(chunk_ / in.size());
  for (std::size_t start = 0; start < longest; start += most) {
    const auto part_of = [&](std::size_t bytes) { return std::min(most, bytes - std::min(start, bytes)); };
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_) copy_to_staging(own_slot() + rank * most, at(in[rank].data, start), part_of(in[rank].bytes));
    round = meet();
    // Copy the own part between the two: inputs may be the outputs of other ranks.
    copy_bytes(at(out[rank_].data, start), at(in[rank_].data, start), part_of(in[rank_].bytes));
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_)
        copy_bytes(at(out[rank].data, start), region_->slot(rank, round) + rank_ * most, part_of(out[rank].bytes));
  }
}

}  // namespace lockstep::collective
