#include "data/iterator.h"

#include <arrow/api.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

namespace lockstep::data {
namespace {

/// Numbers in blocks of given sizes; counts how often each block is read, and fails at one of them.
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::vector<std::int64_t> rows, std::optional<std::size_t> broken = {})
      : rows_(std::move(rows)), broken_(broken), reads_(rows_.size()) {}

  std::string description() const override { return "numbers"; }
  std::string identity() const override { return "numbers"; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return rows_; }
  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>&) const override {
    ++reads_[block];
    if (broken_ == block) throw StorageError("[data] block " + std::to_string(block) + " is broken");
    arrow::Int64Builder builder;
    const auto first =
        std::accumulate(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
    for (std::int64_t row = 0; row < rows_[block]; ++row) EXPECT_TRUE(builder.Append(first + row).ok());
    const auto array = *builder.Finish();
    const std::lock_guard lock(mutex_);
    given_.push_back(array->data()->buffers[1]);
    return arrow::Table::Make(schema_, {array});
  }
  /// Blocks that were read and are still in memory.
  std::ptrdiff_t held() const {
    const std::lock_guard lock(mutex_);
    return std::count_if(given_.begin(), given_.end(), [](const auto& each) { return !each.expired(); });
  }
  int most_reads() const { return *std::max_element(reads_.begin(), reads_.end()); }
  int all_reads() const { return std::accumulate(reads_.begin(), reads_.end(), 0); }

 private:
  std::shared_ptr<arrow::Schema> schema_ = arrow::schema({arrow::field("n", arrow::int64())});
  std::vector<std::int64_t> rows_;
  std::optional<std::size_t> broken_;
  mutable std::vector<std::atomic<int>> reads_;
  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<arrow::Buffer>> given_;
};

std::vector<std::int64_t> numbers_in(const arrow::RecordBatch& batch) {
  const auto& array = static_cast<const arrow::Int64Array&>(*batch.column(0));
  return {array.raw_values(), array.raw_values() + array.length()};
}

/// What one pass of an iterator gives, `most` batches at most.
std::vector<std::vector<std::int64_t>> batches_of(Iterator& iterator, std::int64_t size, std::int64_t most = -1) {
  std::vector<std::vector<std::int64_t>> found;
  const auto pass = iterator.begin(size, false);
  for (std::int64_t n = 0; n != most; ++n) {
    const auto batch = iterator.next(*pass);
    if (!batch) break;
    found.push_back(numbers_in(*batch));
  }
  return found;
}

std::vector<std::int64_t> joined(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

/// The numbers of an epoch by the formula.
std::vector<std::int64_t> expected(const std::vector<std::int64_t>& blocks, const OrderOptions& options,
                                   std::int64_t epoch) {
  const EpochOrder order(blocks, options, epoch);
  std::vector<std::int64_t> all;
  for (std::int64_t place = 0; place < order.total(); ++place) {
    const Part row = order.row(place);
    all.push_back(std::accumulate(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(row.block), row.first));
  }
  return all;
}

const std::vector<std::int64_t> kBlocks{13, 100, 1, 40, 7, 64, 64, 5};

TEST(Iterator, FollowsTheFormulaForEveryWorldSize) {
  for (const bool shuffle : {false, true})
    for (const std::int64_t window : {1, 10, 50, 1000})
      for (const int world : {1, 2, 3, 4, 8}) {
        const OrderOptions order{shuffle, 4, window};
        const auto wanted = expected(kBlocks, order, 0);
        std::vector<std::vector<std::vector<std::int64_t>>> ranks;
        for (int rank = 0; rank < world; ++rank) {
          Iterator iterator(Dataset(std::make_shared<CountingSource>(kBlocks)), {order, rank, world, Tail::pad, 3});
          ranks.push_back(batches_of(iterator, 16));
          EXPECT_EQ(ranks.back().size(), ranks.front().size());
        }
        std::vector<std::int64_t> found;
        for (std::size_t n = 0; n < ranks.front().size(); ++n)
          for (const auto& rank : ranks) found.insert(found.end(), rank[n].begin(), rank[n].end());
        ASSERT_GE(found.size(), wanted.size());
        for (auto n = wanted.size(); n < found.size(); ++n) EXPECT_EQ(found[n], wanted[n - wanted.size()]);
        found.resize(wanted.size());
        EXPECT_EQ(found, wanted) << "window " << window << ", " << world << " ranks";
      }
}

TEST(Iterator, EveryEpochHasItsOwnOrder) {
  const OrderOptions order{true, 4, 50};
  Iterator iterator(Dataset(std::make_shared<CountingSource>(kBlocks)), {order});
  for (const std::int64_t epoch : {0, 1, 2})
    EXPECT_EQ(joined(batches_of(iterator, 10)), expected(kBlocks, order, epoch));
}

TEST(Iterator, ReadsEveryBlockOnce) {
  for (const bool shuffle : {false, true})
    for (const std::int64_t window : {10, 50, 1000}) {
      const auto source = std::make_shared<CountingSource>(kBlocks);
      Iterator iterator(Dataset(source), {{shuffle, 4, window}, 0, 1, Tail::pad, 3});
      EXPECT_EQ(joined(batches_of(iterator, 16)).size(), 294u);
      EXPECT_EQ(source->most_reads(), 1) << "window " << window;
    }
}

TEST(Iterator, RanksOfANodeReadEveryBlockOnceTogether) {
  for (const bool shuffle : {false, true})
    for (const int world : {2, 4}) {
      const OrderOptions order{shuffle, 4, 100};
      const std::vector<std::int64_t> blocks(60, 50);
      const auto wanted = expected(blocks, order, 0);
      const auto source = std::make_shared<CountingSource>(blocks);
      const std::string name = "ranks-" + std::to_string(::getpid()) + std::to_string(shuffle) + std::to_string(world);
      std::vector<std::vector<std::vector<std::int64_t>>> ranks(static_cast<std::size_t>(world));
      std::vector<std::unique_ptr<Iterator>> iterators;
      for (int rank = 0; rank < world; ++rank) {
        auto cache = SharedCache::join(name, world, 1 << 20);
        ASSERT_TRUE(cache);
        iterators.push_back(std::make_unique<Iterator>(
            Dataset(source), IteratorOptions{order, rank, world, Tail::pad, 2, std::move(cache)}));
      }
      {
        std::vector<std::jthread> threads;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
          threads.emplace_back([&, rank] { ranks[rank] = batches_of(*iterators[rank], 10); });
      }
      std::vector<std::int64_t> found;
      for (std::size_t n = 0; n < ranks.front().size(); ++n)
        for (const auto& rank : ranks) found.insert(found.end(), rank[n].begin(), rank[n].end());
      EXPECT_EQ(found, wanted);
      EXPECT_EQ(source->all_reads(), 60) << "shuffle " << shuffle << ", " << world << " ranks";
    }
}

TEST(Iterator, ABrokenBlockIsAnErrorOnEveryRank) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(8, 50), 3);
  const std::string name = "broken-" + std::to_string(::getpid());
  std::vector<std::unique_ptr<Iterator>> iterators;
  for (int rank = 0; rank < 2; ++rank)
    iterators.push_back(std::make_unique<Iterator>(
        Dataset(source), IteratorOptions{{false, 0, 1}, rank, 2, Tail::pad, 2, SharedCache::join(name, 2, 1 << 20)}));
  std::vector<std::jthread> threads;
  for (auto& iterator : iterators)
    threads.emplace_back([&iterator] { EXPECT_THROW(batches_of(*iterator, 10), StorageError); });
}

TEST(Iterator, ResumesAnywhereWithAnyNumberOfRanks) {
  std::mt19937 random(1);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int n = 0; n < 100; ++n) {
    const OrderOptions order{pick(0, 3) > 0, static_cast<std::uint64_t>(pick(0, 9)), pick(1, 400)};
    const auto wanted = expected(kBlocks, order, 1);
    const int world = pick(1, 4), size = pick(1, 40);
    const Dataset dataset(std::make_shared<CountingSource>(kBlocks));
    Iterator before(dataset, {order, 0, world, Tail::pad, 2});
    before.cursor().set_epoch(1);
    const int given = static_cast<int>(batches_of(before, size, pick(0, 294 / (world * size))).size());
    const Value state = before.cursor().state();
    const auto position = static_cast<std::size_t>(state["position"].get<std::int64_t>());
    EXPECT_EQ(position, static_cast<std::size_t>(std::min(294, given * world * size)));
    Iterator after(dataset, {order, 0, 1, Tail::pad, 2});
    after.cursor().load_state(state);
    EXPECT_EQ(joined(batches_of(after, pick(1, 40))),
              std::vector<std::int64_t>(wanted.begin() + static_cast<std::ptrdiff_t>(position), wanted.end()));
    EXPECT_EQ(after.cursor().state()["epoch"], 2);
  }
}

TEST(Iterator, ResumingReadsOnlyWhatIsLeft) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(100, 10));
  Iterator iterator(Dataset(source), {{true, 4, 20}});
  Value state = iterator.cursor().state();
  state["position"] = 960u;
  iterator.cursor().load_state(state);
  EXPECT_EQ(joined(batches_of(iterator, 7)).size(), 40u);
  EXPECT_EQ(source->all_reads(), 4);
}

TEST(Iterator, ReadsNoFurtherAheadThanAllowed) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(1000, 10));
  Iterator iterator(Dataset(source), {{false, 0, 1}, 0, 1, Tail::pad, 3});
  const auto pass = iterator.begin(10, false);
  for (int n = 1; n <= 50; ++n) {
    ASSERT_TRUE(iterator.next(*pass));
    EXPECT_LE(source->all_reads(), n + 3);
  }
}

TEST(Iterator, HoldsOnlyTheBlocksOfItsWindows) {
  for (const bool shuffle : {false, true}) {
    const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(300, 10));
    Iterator iterator(Dataset(source), {{shuffle, 0, 25}, 0, 1, Tail::pad, 3});
    const auto pass = iterator.begin(7, false);
    while (iterator.next(*pass))
      EXPECT_LE(source->held(), 4 * 4);  // a window of 25 rows lies in at most 4 blocks; 3 windows are read ahead
  }
}

TEST(Iterator, AnAbandonedPassStopsReading) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(1000, 10));
  Iterator iterator(Dataset(source), {{true, 0, 20}});
  batches_of(iterator, 10, 3);
  const int reads = source->all_reads();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source->all_reads(), reads);
  EXPECT_LT(reads, 20);
}

TEST(Iterator, ErrorsComeInTurn) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>(20, 10), 7);
  Iterator iterator(Dataset(source), {{false, 0, 1}, 0, 1, Tail::pad, 4});
  const auto pass = iterator.begin(10, false);
  for (int n = 0; n < 7; ++n) ASSERT_TRUE(iterator.next(*pass));
  EXPECT_THROW(iterator.next(*pass), StorageError);
  EXPECT_EQ(iterator.cursor().state()["position"], 70);
}

TEST(Iterator, ABlockThatSeveralWindowsShareFailsInEachOfThem) {
  const auto source = std::make_shared<CountingSource>(std::vector<std::int64_t>{1000}, 0);
  Iterator iterator(Dataset(source), {{true, 0, 10}, 0, 1, Tail::pad, 4});
  const auto pass = iterator.begin(10, false);
  EXPECT_THROW(iterator.next(*pass), StorageError);
}

TEST(Iterator, AnOlderPassDoesNotMoveThePosition) {
  Iterator iterator(Dataset(std::make_shared<CountingSource>(kBlocks)), {{true, 0, 10}});
  const auto old = iterator.begin(10, false), pass = iterator.begin(10, false);
  ASSERT_TRUE(iterator.next(*pass));
  ASSERT_TRUE(iterator.next(*old));
  ASSERT_TRUE(iterator.next(*old));
  EXPECT_EQ(iterator.cursor().state()["position"], 10);
  EXPECT_EQ(iterator.cursor().epoch(), 1);
}

TEST(Iterator, AnEmptyDataSetHasNoBatches) {
  for (const bool shuffle : {false, true}) {
    Iterator iterator(Dataset(open_range(0)), {{shuffle, 0, 10}, 1, 2});
    EXPECT_TRUE(batches_of(iterator, 10).empty());
    EXPECT_EQ(iterator.cursor().epoch(), 1);
  }
}

TEST(Iterator, RefusesImpossibleOptions) {
  const Dataset dataset(open_range(10));
  EXPECT_THROW(Iterator(dataset, {{true, 0, 0}}), ConfigError);
  EXPECT_THROW(Iterator(dataset, {{}, 2, 2}), ConfigError);
  Iterator iterator(dataset, {});
  EXPECT_THROW(iterator.begin(0, false), ConfigError);
  EXPECT_EQ(iterator.cursor().epoch(), 0);
  EXPECT_THROW(Iterator(dataset, {{}, 0, 1, Tail::pad, 0}).begin(1, false), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
