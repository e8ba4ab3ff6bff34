#pragma once

#include <arrow/type_fwd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "data/shared_cache.h"

/// Tables in the memory that the ranks of a node share, in Arrow's format of streams.
namespace lockstep::data {

/// The memory of an entry, which stays pinned as long as anything points into it.
std::shared_ptr<arrow::Buffer> buffer_of(SharedCache::Pinned pinned);
/// The table of a stream in this memory, which it keeps alive.
std::shared_ptr<arrow::Table> read_table(std::shared_ptr<arrow::Buffer> stream);
/// Writes a table into a claimed entry, from the byte `head` on. The memory of the entry; empty if there is no room
/// (see SharedCache::room), or if Arrow cannot write the table.
std::span<std::byte> write_table(SharedCache& cache, std::uint64_t key, const arrow::Table& table, std::size_t head,
                                 bool evict);

/// A table that the first rank to need it makes for all ranks of the node. It stays as long as the cache. Any thread
/// may call.
class SharedTable {
 public:
  SharedTable(std::shared_ptr<SharedCache> cache, std::uint64_t key) : cache_(std::move(cache)), key_(key) {}

  /// What `make` gives, here or on another rank. Waits for a rank that makes it; if that rank dies or fails, another
  /// one goes on. Without memory that can be shared, each rank makes its own. `step` is for the watch.
  std::shared_ptr<arrow::Table> get(const std::string& step,
                                    const std::function<std::shared_ptr<arrow::Table>()>& make) const;

 private:
  std::shared_ptr<SharedCache> cache_;
  std::uint64_t key_;
};

}  // namespace lockstep::data
