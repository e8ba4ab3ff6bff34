#pragma once

#include <arrow/type_fwd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "data/dataset.h"
#include "data/shared_cache.h"

namespace lockstep::data {

/// Room for blocks that the ranks of a node share. Memory is taken when it is needed; if there is less, ranks share
/// less. It counts as memory of each of them, and a worker with torch shall stay below 500 MB.
inline constexpr std::size_t kSharedBytes = std::size_t{96} << 20;

/// The blocks of one pass over a data set, each of which one rank of the node reads for all. A block that another rank
/// does not finish in 10 s is read here too, so no rank can hang for another. A rank may change the rows that are dealt
/// to it alone: no later pass sees the same memory. Any thread may call.
class SharedBlocks {
 public:
  /// The n-th pass of a rank over this epoch shares with the n-th of the others.
  SharedBlocks(std::shared_ptr<SharedCache> cache, Dataset dataset, std::int64_t epoch);

  struct Got {
    std::shared_ptr<arrow::Table> table;
    bool is_shared = false;  ///< it lies in the memory of all ranks
  };
  /// The block. While another rank reads it, reads one of the blocks `next` for all.
  Got get(std::size_t block, std::span<const std::size_t> next);
  /// This rank needs the block no more.
  void done(std::size_t block) { cache_->done(key(block)); }
  /// How many blocks are worth reading ahead of need.
  std::size_t ahead() const { return static_cast<std::size_t>(cache_->ranks()); }

 private:
  std::uint64_t key(std::size_t block) const;
  Got alone(std::size_t block) const;
  Got make(std::size_t block, bool evict);
  bool make_numbers(std::size_t block, bool evict);
  Got in_memory(std::size_t block, SharedCache::Pinned pinned) const;
  bool help(std::span<const std::size_t> next);

  std::shared_ptr<SharedCache> cache_;
  Dataset dataset_;
  std::uint64_t identity_;
  std::atomic<std::size_t> usual_size_{0};  ///< of a block in shared memory
};

}  // namespace lockstep::data
