#pragma once

#include <arrow/buffer.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep::data {

/// Memory that is used again when nobody holds it any more: getting fresh memory from the system takes longer than
/// copying rows into it. Any thread may call; buffers may outlive it.
class ReusedMemory : public std::enable_shared_from_this<ReusedMemory> {
 public:
  /// Keeps at most `count` unused pieces.
  explicit ReusedMemory(std::size_t count) : count_(count) {}

  /// `size` bytes, whose contents are undefined. They come back when the buffer and its slices are gone.
  std::shared_ptr<arrow::Buffer> get(std::int64_t size);

 private:
  class Lent;
  void give_back(std::unique_ptr<arrow::Buffer> piece);

  const std::size_t count_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<arrow::Buffer>> unused_;
};

/// Some rows of tables with the same columns, in the given order. Rows are counted through all tables.
std::shared_ptr<arrow::RecordBatch> gathered(const std::vector<std::shared_ptr<arrow::Table>>& tables,
                                             std::span<const std::int64_t> rows, ReusedMemory& memory);

}  // namespace lockstep::data
