#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "data/order.h"
#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

/// Neighbouring rows of a source whose blocks are counted.
class SliceSource final : public Step {
 public:
  SliceSource(SourcePointer from, std::int64_t begin, std::int64_t end, std::string description)
      : Step(std::move(from)), begin_(begin), end_(end), description_(std::move(description)) {}

  std::string description() const override { return description_; }
  std::string identity() const override {
    return from_->identity() + "\nrows " + std::to_string(begin_) + " " + std::to_string(end_);
  }
  std::size_t blocks() const override { return layout().parts.size(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return layout().rows; }
  std::int64_t rows_of_block(std::size_t block) const override { return layout().rows[block]; }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const Part& part = layout().parts[block];
    return measured(*from_, part.block, columns)->Slice(part.first, part.count);
  }

  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    const auto all = from_->may_match(filter);
    std::vector<bool> matching;
    if (!all.empty())
      for (const Part& part : layout().parts) matching.push_back(all[part.block]);
    return matching;
  }

 private:
  struct Layout {
    std::vector<Part> parts{};
    std::vector<std::int64_t> rows{};
  };

  const Layout& layout() const {
    const auto& all = from_->rows_of_blocks();  // may read: not under the lock
    const std::lock_guard lock(mutex_);
    if (!layout_) {
      Layout made;
      std::int64_t at = 0;
      for (std::size_t block = 0; block < all.size() && at < end_; at += all[block++]) {
        const std::int64_t first = std::max(begin_ - at, std::int64_t{0});
        const std::int64_t count = std::min(all[block], end_ - at) - first;
        if (count <= 0) continue;
        made.parts.push_back({block, first, count});
        made.rows.push_back(count);
      }
      layout_ = std::move(made);
    }
    return *layout_;
  }

  const std::int64_t begin_;
  const std::int64_t end_;
  const std::string description_;
  mutable std::mutex mutex_;
  mutable std::optional<Layout> layout_;
};

/// The first rows of a source whose blocks are not counted: no block is read after they are found.
class HeadSource final : public Step {
 public:
  HeadSource(SourcePointer from, std::int64_t count, std::string description)
      : Step(std::move(from)), count_(count), description_(std::move(description)) {}

  std::string description() const override { return description_; }
  std::string identity() const override { return from_->identity() + "\nrows 0 " + std::to_string(count_); }

  const std::vector<std::int64_t>& rows_of_blocks() const override {
    if (is_counted()) return rows_;
    std::vector<std::int64_t> rows;
    for (std::size_t block = 0; block < blocks(); ++block) rows.push_back(rows_of_block(block));
    const std::lock_guard lock(mutex_);
    if (!counted_) rows_ = std::move(rows);
    counted_ = true;
    return rows_;
  }
  bool is_counted() const override {
    const std::lock_guard lock(mutex_);
    return counted_;
  }
  std::int64_t rows_of_block(std::size_t block) const override {
    const std::int64_t left = count_ - rows_before(block);
    return left <= 0 ? 0 : std::min(left, from_->rows_of_block(block));
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const std::int64_t left = count_ - rows_before(block);
    return left <= 0 ? empty_table(*schema(), columns) : measured(*from_, block, columns)->Slice(0, left);
  }

 private:
  /// At least count_ means: enough.
  std::int64_t rows_before(std::size_t block) const {
    std::int64_t rows = 0;
    std::size_t next = 0;
    {
      const std::lock_guard lock(mutex_);
      next = std::min(block, ends_.size());
      if (next > 0) rows = ends_[next - 1];
    }
    for (; next < block && rows < count_; ++next) {
      rows += from_->rows_of_block(next);
      const std::lock_guard lock(mutex_);
      if (ends_.size() == next) ends_.push_back(rows);
    }
    return rows;
  }

  const std::int64_t count_;
  const std::string description_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> ends_;  ///< rows of the blocks up to each one
  mutable std::vector<std::int64_t> rows_;
  mutable bool counted_ = false;
};

class ShuffledBlocks final : public Step {
 public:
  ShuffledBlocks(SourcePointer from, std::uint64_t seed) : Step(std::move(from)), seed_(seed) {}

  std::string description() const override { return "randomize_block_order: seed " + std::to_string(seed_); }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    const auto& all = from_->rows_of_blocks();
    const std::lock_guard lock(mutex_);
    if (rows_.size() != all.size())
      for (std::size_t block = 0; block < all.size(); ++block) rows_.push_back(all[place(block, all.size())]);
    return rows_;
  }
  std::int64_t rows_of_block(std::size_t block) const override { return from_->rows_of_block(place(block)); }
  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    return measured(*from_, place(block), columns);
  }
  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    const auto all = from_->may_match(filter);
    std::vector<bool> matching;
    for (std::size_t block = 0; block < all.size(); ++block) matching.push_back(all[place(block, all.size())]);
    return matching;
  }

 private:
  std::size_t place(std::size_t block) const { return place(block, from_->blocks()); }
  std::size_t place(std::size_t block, std::size_t blocks) const {
    return static_cast<std::size_t>(detail::Permutation(blocks, detail::mixed(seed_, 0))(block));
  }

  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> rows_;
};

}  // namespace

SourcePointer slice(SourcePointer from, std::int64_t begin, std::int64_t end, std::string description) {
  if (begin == 0 && !from->is_counted())
    return std::make_shared<HeadSource>(std::move(from), end, std::move(description));
  return std::make_shared<SliceSource>(std::move(from), begin, end, std::move(description));
}

SourcePointer shuffle_blocks(SourcePointer from, std::uint64_t seed) {
  return std::make_shared<ShuffledBlocks>(std::move(from), seed);
}

}  // namespace lockstep::data
