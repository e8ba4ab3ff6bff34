// The collectives of a group on several nodes that only move data.

#include <algorithm>

#include "collective/spanning_parts.h"

namespace lockstep::collective {
namespace {

/// Equal parts of a buffer, of whole cache lines.
struct Piece {
  std::size_t start = 0;
  std::size_t bytes = 0;
};
Piece piece_of(std::size_t bytes, int parts, int index) {
  const auto count = static_cast<std::size_t>(parts);
  const std::size_t each = ((bytes + count - 1) / count + kCacheLine - 1) / kCacheLine * kCacheLine;
  const std::size_t start = std::min(bytes, static_cast<std::size_t>(index) * each);
  return {start, std::min(each, bytes - start)};
}

}  // namespace

/// A tree of nodes, whose root is the node of `root`; each carrier passes on its piece, and the ranks of a node give
/// each other the pieces.
void SpanningGroup::broadcast(void* data, std::size_t bytes, int root) {
  check_root(*this, root);
  call(intent_of(CallKind::broadcast, bytes, root), [&] {
    const int root_node = nodes_.node_of[root];
    const int count = nodes_.count();
    if (bytes <= kSmall) {
      std::array<std::byte, kSmall> whole{};
      if (rank_ == root) copy_bytes(whole.data(), data, bytes);
      if (node() == root_node) local_->broadcast(whole.data(), bytes, nodes_.place_of[root]);
      greet({whole.data(), node() == root_node ? bytes : 0});
      agree({whole.data(), bytes}, [&] { copy_bytes(whole.data(), hellos_[root_node]->payload.data(), bytes); });
      if (rank_ != root) copy_bytes(data, whole.data(), bytes);
      return;
    }
    greet();
    agree();
    const int self = (node() - root_node + count) % count;
    for (std::size_t start = 0; start < bytes; start += chunk_bytes_) {
      const std::size_t chunk = std::min(chunk_bytes_, bytes - start);
      std::byte* whole = at(data, start);
      if (node() == root_node) local_->broadcast(whole, chunk, nodes_.place_of[root]);
      std::vector<Links::Pending> transfers;
      const Piece mine = place() < carriers_ ? piece_of(chunk, carriers_, place()) : Piece{};
      int step = 1;
      for (; step < count && (self & step) == 0; step <<= 1) {
      }
      if (self != 0) {
        transfers.push_back(
            receive(whole + mine.start, mine.bytes, counterpart((self - step + root_node) % count), kData));
        wait_all(transfers);
      }
      for (step >>= 1; step > 0; step >>= 1)
        if (self + step < count)
          transfers.push_back(
              send(whole + mine.start, mine.bytes, counterpart((self + step + root_node) % count), kData));
      wait_all(transfers);
      if (node() == root_node) continue;
      std::vector<void*> parts;
      std::vector<std::size_t> sizes;
      for (int each = 0; each < local_->size(); ++each) {
        const Piece piece = each < carriers_ ? piece_of(chunk, carriers_, each) : Piece{};
        parts.push_back(whole + piece.start);
        sizes.push_back(piece.bytes);
      }
      local_->all_gather_parts(parts[place()], parts, sizes);
    }
  });
}

void SpanningGroup::all_gather(const void* in, std::span<void* const> out, std::size_t bytes) {
  check_parts(*this, out.size(), "output");
  call(intent_of(CallKind::all_gather, bytes), [&] {
    greet();
    agree();
    // First of all: `in` may be where another rank's part goes.
    copy_bytes(out[rank_], in, bytes);
    const int here = local_->size();
    std::vector<Links::Pending> transfers;
    for (int each = 0; each < nodes_.count(); ++each) {
      if (each == node()) continue;
      const std::vector<int>& there = nodes_.ranks[each];
      transfers.push_back(send(out[rank_], bytes, counterpart(each), kData));
      for (int from = place(); from < static_cast<int>(there.size()); from += here)
        transfers.push_back(receive(out[there[from]], bytes, there[from], kData));
    }
    // For each node: those of its ranks whose part came to this node in the same turn.
    const auto share = [&](const std::vector<int>& there, int first) {
      std::vector<void*> parts(static_cast<std::size_t>(here), nullptr);
      std::vector<std::size_t> sizes(static_cast<std::size_t>(here), 0);
      for (int each = 0; each < here && first + each < static_cast<int>(there.size()); ++each) {
        parts[each] = out[there[first + each]];
        sizes[each] = bytes;
      }
      local_->all_gather_parts(parts[place()], parts, sizes);
    };
    share(neighbours(), 0);
    wait_all(transfers);
    for (int each = 0; each < nodes_.count(); ++each)
      for (int first = 0; each != node() && first < static_cast<int>(nodes_.ranks[each].size()); first += here)
        share(nodes_.ranks[each], first);
  });
}

void SpanningGroup::gather(const void* in, std::span<void* const> out, std::size_t bytes, int root) {
  check_root(*this, root);
  if (rank_ == root) check_parts(*this, out.size(), "output");
  call(intent_of(CallKind::gather, bytes, root), [&] {
    greet();
    agree();
    std::vector<Links::Pending> transfers;
    if (nodes_.node_of[root] != node()) {
      transfers.push_back(send(in, bytes, root, kData));
      return wait_all(transfers);
    }
    std::vector<void*> near;
    if (rank_ == root)
      for (const int each : neighbours()) near.push_back(out[each]);
    // Before anything comes from other nodes: `in` may be where that goes.
    local_->gather(in, near, bytes, nodes_.place_of[root]);
    for (int each = 0; rank_ == root && each < size(); ++each)
      if (nodes_.node_of[each] != node()) transfers.push_back(receive(out[each], bytes, each, kData));
    wait_all(transfers);
  });
}

void SpanningGroup::scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root) {
  check_root(*this, root);
  if (rank_ == root) check_parts(*this, in.size(), "input");
  call(intent_of(CallKind::scatter, bytes, root), [&] {
    greet();
    agree();
    std::vector<Links::Pending> transfers;
    if (nodes_.node_of[root] != node()) {
      transfers.push_back(receive(out, bytes, root, kData));
      return wait_all(transfers);
    }
    for (int each = 0; rank_ == root && each < size(); ++each)
      if (nodes_.node_of[each] != node()) transfers.push_back(send(in[each], bytes, each, kData));
    // Sent before `out` is written, which may be where another rank's part was.
    wait_all(transfers);
    std::vector<const void*> near;
    if (rank_ == root)
      for (const int each : neighbours()) near.push_back(in[each]);
    local_->scatter(near, out, bytes, nodes_.place_of[root]);
  });
}

void SpanningGroup::all_to_all(std::span<const ConstBuffer> in, std::span<const Buffer> out) {
  check_parts(*this, in.size(), "input");
  check_parts(*this, out.size(), "output");
  call(intent_of(CallKind::all_to_all, 0), [&] {
    greet();
    agree();
    std::vector<std::uint64_t> given(in.size()), taken(in.size());
    std::vector<Links::Pending> transfers;
    const auto is_far = [&](int rank) { return nodes_.node_of[rank] != node(); };
    for (int each = 0; each < size(); ++each) {
      given[each] = in[each].bytes;
      if (!is_far(each)) continue;
      transfers.push_back(receive(&taken[each], sizeof taken[each], each, kSizes));
      transfers.push_back(send(&given[each], sizeof given[each], each, kSizes));
    }
    wait_all(transfers);
    for (int from = 0; from < size(); ++from) {
      if (!is_far(from) || taken[from] == out[from].bytes) continue;
      throw ConfigError("[collective] all_to_all: rank " + std::to_string(from) + " gives rank " +
                        std::to_string(rank_) + " " + std::to_string(taken[from]) + " bytes, which expects " +
                        std::to_string(out[from].bytes) + "; give both the same size");
    }
    // Inputs may be the outputs of other ranks, so what goes far is copied before anything arrives.
    std::vector<std::byte> copies;
    std::size_t total = 0;
    for (int each = 0; each < size(); ++each) total += is_far(each) ? in[each].bytes : 0;
    copies.resize(total);
    total = 0;
    for (int each = 0; each < size(); ++each) {
      if (!is_far(each)) continue;
      copy_bytes(copies.data() + total, in[each].data, in[each].bytes);
      transfers.push_back(send(copies.data() + total, in[each].bytes, each, kData));
      total += in[each].bytes;
    }
    std::vector<ConstBuffer> near_in;
    std::vector<Buffer> near_out;
    for (const int each : neighbours()) {
      near_in.push_back(in[each]);
      near_out.push_back(out[each]);
    }
    local_->all_to_all(near_in, near_out);
    for (int each = 0; each < size(); ++each)
      if (is_far(each)) transfers.push_back(receive(out[each].data, out[each].bytes, each, kData));
    wait_all(transfers);
  });
}

}  // namespace lockstep::collective
