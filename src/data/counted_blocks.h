#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/all_blocks.h"

namespace lockstep::data {

/// The rows of blocks, as far as they are known yet. Any thread may call.
class CountedBlocks {
 public:
  bool is_complete() const {
    const std::lock_guard lock(mutex_);
    return complete_;
  }
  std::optional<std::int64_t> rows(std::size_t block) const {
    const std::lock_guard lock(mutex_);
    if (block >= rows_.size() || rows_[block] < 0) return std::nullopt;
    return rows_[block];
  }
  void set(std::size_t block, std::int64_t rows) {
    const std::lock_guard lock(mutex_);
    if (complete_) return;
    if (block >= rows_.size()) rows_.resize(block + 1, -1);
    rows_[block] = rows;
  }
  void set_all(std::vector<std::int64_t> rows) {
    const std::lock_guard lock(mutex_);
    if (complete_) return;
    rows_ = std::move(rows);
    complete_ = true;
  }
  /// All of them; `count(block)` is called on threads for those that are not known.
  template <class Count>
  const std::vector<std::int64_t>& all(const std::string& step, std::size_t blocks, const Count& count) {
    if (!is_complete()) {
      std::vector<std::int64_t> counted;
      counted.reserve(blocks);
      for_all_blocks(
          "count " + step, blocks,
          [&](std::size_t block) {
            const auto known = rows(block);
            return known ? *known : count(block);
          },
          [&](std::int64_t rows) { counted.push_back(rows); });
      set_all(std::move(counted));
    }
    return rows_;  // does not change any more
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int64_t> rows_;  ///< -1: not known
  bool complete_ = false;
};

}  // namespace lockstep::data
