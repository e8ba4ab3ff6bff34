#include "data/steps.h"

#include <arrow/api.h>
#include <arrow/compute/expression.h>
#include <arrow/compute/initialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "data/dataset.h"
#include "data/iterator.h"
#include "data/numbers.h"
#include "data/status.h"
#include "data/stream.h"
#include "data/watch.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

Numbers values(const arrow::Table& table, int column = 0) {
  Numbers found;
  for (const auto& chunk : table.column(column)->chunks()) {
    const auto& array = static_cast<const arrow::Int64Array&>(*chunk);
    found.insert(found.end(), array.raw_values(), array.raw_values() + array.length());
  }
  return found;
}

/// Numbers in the column `n` and their negatives in `m`, in blocks of given sizes; tells what is read.
class NumberSource final : public Source {
 public:
  explicit NumberSource(Numbers rows) : rows_(std::move(rows)), reads_(rows_.size()) {}

  std::string description() const override { return "numbers"; }
  std::string identity() const override { return "numbers"; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const Numbers& rows_of_blocks() const override { return rows_; }
  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    ++reads_[block];
    columns_read_ += columns.size();
    arrow::Int64Builder numbers, negatives;
    const auto first =
        std::accumulate(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
    for (std::int64_t row = first; row < first + rows_[block]; ++row) {
      check(numbers.Append(row), "a number");
      check(negatives.Append(-row), "a number");
    }
    const auto table = arrow::Table::Make(schema_, {*numbers.Finish(), *negatives.Finish()});
    return value_of(table->SelectColumns(columns), "numbers");
  }
  bool read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const override {
    const auto table = read(block, columns);
    for (int column = 0; column < table->num_columns(); ++column) {
      const Numbers found = values(*table, column);
      std::memcpy(room.bytes.data() + static_cast<std::size_t>(column) * aligned_bytes(*arrow::int64(), rows_[block]),
                  found.data(), found.size() * sizeof(std::int64_t));
    }
    return true;
  }
  /// Blocks that hold only numbers of at least 1000 say that they do.
  std::vector<bool> may_match(const arrow::compute::Expression& /*filter*/) const override {
    std::vector<bool> matching;
    for (std::size_t block = 0, first = 0; block < rows_.size(); first += static_cast<std::size_t>(rows_[block++]))
      matching.push_back(first < 1000);
    return matching;
  }

  int reads(std::size_t block) const { return reads_[block]; }
  int all_reads() const { return std::accumulate(reads_.begin(), reads_.end(), 0); }
  std::size_t columns_read() const { return columns_read_; }

 private:
  std::shared_ptr<arrow::Schema> schema_ =
      arrow::schema({arrow::field("n", arrow::int64()), arrow::field("m", arrow::int64())});
  Numbers rows_;
  mutable std::vector<std::atomic<int>> reads_;
  mutable std::atomic<std::size_t> columns_read_ = 0;
};

const Numbers kSizes{13, 100, 1, 40, 7, 64, 64, 5};

std::shared_ptr<NumberSource> numbers(const Numbers& blocks = kSizes) { return std::make_shared<NumberSource>(blocks); }

Numbers all_values(const SourcePointer& source, int column = 0) { return values(*read_all(*source, "test"), column); }

Numbers from_to(std::int64_t begin, std::int64_t end) {
  Numbers numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

/// The rows whose number is a multiple of `step`.
BlockFunction multiples(std::int64_t step, std::atomic<int>* calls = nullptr) {
  return [step, calls](const std::shared_ptr<arrow::Table>& table, std::size_t) {
    if (calls) ++*calls;
    arrow::Int64Builder builder;
    for (const std::int64_t number : values(*table))
      if (number % step == 0) check(builder.Append(number), "a number");
    return arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int64())}), {*builder.Finish()});
  };
}

arrow::compute::Expression less(const char* column, std::int64_t most) {
  return arrow::compute::less(arrow::compute::field_ref(column), arrow::compute::literal(most));
}

struct Kernels : testing::Environment {
  void SetUp() override { check(arrow::compute::Initialize(), "Arrow"); }
};
const auto* const kKernels = testing::AddGlobalTestEnvironment(new Kernels);

TEST(Select, ReadsOnlyItsColumns) {
  const auto source = numbers();
  const Dataset renamed = Dataset(source).rename_columns({{"n", "m"}, {"m", "k"}}).drop_columns({"m"});
  EXPECT_EQ(renamed.schema()->ToString(), "k: int64");
  EXPECT_EQ(all_values(renamed.source())[5], -5);
  EXPECT_EQ(source->columns_read(), kSizes.size());
  EXPECT_EQ(Dataset(source).fingerprint(), renamed.fingerprint());
}

TEST(Slice, ReadsOnlyItsBlocks) {
  const auto source = numbers();
  const auto part = slice(source, 120, 160, "part");
  EXPECT_THAT(part->rows_of_blocks(), ElementsAre(34, 6));
  EXPECT_EQ(all_values(part), from_to(120, 160));
  EXPECT_EQ(source->all_reads(), 2);
  EXPECT_EQ(all_values(slice(part, 30, 1000, "of a part")), from_to(150, 160));
  EXPECT_TRUE(all_values(slice(source, 10, 10, "nothing")).empty());
  EXPECT_EQ(all_values(slice(source, 290, INT64_MAX, "the rest")), from_to(290, 294));
}

TEST(Slice, OfUncountedRowsReadsOnlyWhatItNeeds) {
  std::atomic<int> calls = 0;
  const auto source = numbers(Numbers(100, 10));
  const auto even = map(source, multiples(2, &calls), {.name = "even"});
  const auto head = slice(even, 0, 7, "limit: 7");
  EXPECT_FALSE(head->is_counted());
  Stream stream(Dataset(head), {.batch_size = 100, .drop_last = false, .prefetch = 4});
  stream.start();
  EXPECT_EQ(stream.next()->num_rows(), 7);
  EXPECT_EQ(stream.next(), nullptr);
  EXPECT_LE(calls, 2);
  EXPECT_EQ(std::accumulate(head->rows_of_blocks().begin(), head->rows_of_blocks().end(), std::int64_t{0}), 7);
  EXPECT_LE(calls, 2);
}

TEST(Union, WidensTypes) {
  const auto swapped = select(numbers({3}), "swapped", [](const arrow::Schema&) {
    return std::vector<Selected>{{1, "m"}, {0, "n"}};
  });
  const auto both = concatenate({numbers({2}), swapped});
  EXPECT_EQ(all_values(both, 0), (Numbers{0, 1, 0, 1, 2}));
  EXPECT_EQ(all_values(both, 1), (Numbers{0, -1, 0, -1, -2}));
  EXPECT_THAT(both->rows_of_blocks(), ElementsAre(2, 3));
  const auto other = Dataset(numbers({2})).select_columns({"n"});
  EXPECT_THROW(concatenate({numbers({2}), other.source()}), ConfigError);
}

TEST(Zip, PairsRowsOfOtherBlocks) {
  const auto left = numbers(), right = numbers({200, 94});
  const auto both = zip(left, right);
  EXPECT_EQ(both->schema()->field_names(), (std::vector<std::string>{"n", "m", "n_1", "m_1"}));
  EXPECT_EQ(all_values(both, 2), from_to(0, 294));
  EXPECT_EQ(values(*both->read(1, {3, 0})), values(*both->read(1, {1})));
  EXPECT_THROW(zip(left, numbers({3})), ConfigError);
}

TEST(ShuffledBlocks, KeepTheirRows) {
  const auto shuffled = shuffle_blocks(numbers(), 7);
  auto found = all_values(shuffled);
  EXPECT_NE(found, from_to(0, 294));
  EXPECT_EQ(found, all_values(shuffle_blocks(numbers(), 7)));
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, from_to(0, 294));
  for (std::size_t block = 0; block < kSizes.size(); ++block)
    EXPECT_EQ(shuffled->read(block, {0})->num_rows(), shuffled->rows_of_blocks()[block]);
}

TEST(Filter, LeavesOutBlocksByTheirStatistics) {
  const auto source = numbers(Numbers(200, 10));
  const auto few = filter(source, less("n", 1'000'000));
  EXPECT_FALSE(few->is_counted());
  EXPECT_THAT(few->description(), HasSubstr("100 of 200 blocks not read"));
  EXPECT_EQ(all_values(few), from_to(0, 1000));
  EXPECT_EQ(source->all_reads(), 100);
  EXPECT_EQ(few->rows_of_blocks()[50], 10);
  EXPECT_EQ(few->rows_of_blocks()[150], 0);
  EXPECT_EQ(source->all_reads(), 100) << "rows that were read are counted";
  EXPECT_TRUE(few->is_counted());
}

TEST(Filter, CountsWithTheColumnsOfTheCondition) {
  const auto source = numbers();
  const auto few = filter(source, less("m", -100));
  EXPECT_EQ(Dataset(few).count(), 193);
  EXPECT_EQ(source->columns_read(), kSizes.size());
  EXPECT_EQ(values(*few->read(1, {0})), from_to(101, 113));
  EXPECT_EQ(few->read(0, {0, 1})->num_columns(), 2);
}

TEST(Filter, RefusesConditionsThatDoNotFit) {
  EXPECT_THROW(filter(numbers(), less("x", 1)), ConfigError);
  EXPECT_THROW(filter(numbers(), arrow::compute::field_ref("n")), ConfigError);
  const auto later = filter(map(numbers(), multiples(2), {.name = "even"}), less("m", 1));
  EXPECT_THROW(later->read(0, {0}), ConfigError);
}

TEST(Map, CountsOnceAndKeepsWhatItMade) {
  std::atomic<int> calls = 0;
  const auto source = numbers();
  const auto even = map(source, multiples(2, &calls), {.name = "even"});
  EXPECT_FALSE(even->knows_schema());
  EXPECT_EQ(even->schema()->ToString(), "n: int64");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Dataset(even).count(), 147);
  EXPECT_EQ(calls, static_cast<int>(kSizes.size()));
  EXPECT_EQ(all_values(even).size(), 147u);
  EXPECT_EQ(calls, static_cast<int>(kSizes.size()));
  EXPECT_EQ(source->reads(0), 1);
}

TEST(Map, IsNotCalledAgainInPlaceForABlockThatItKept) {
  std::atomic<int> calls = 0;
  const auto same = [&] {
    const auto function = [&](const std::shared_ptr<arrow::Table>& table, std::size_t) { return ++calls, table; };
    return Dataset(map(numbers(), function, {.name = "same"}));
  };
  std::vector<std::byte> memory(4096);
  const Room room{memory, std::make_shared<int>()};
  const Dataset counted = same();
  EXPECT_EQ(counted.count(), 294);
  EXPECT_EQ(calls, static_cast<int>(kSizes.size()));
  EXPECT_FALSE(counted.read_numbers(1, room));
  EXPECT_EQ(calls, static_cast<int>(kSizes.size()));

  calls = 0;
  const Dataset fresh = same();
  fresh.source()->set_rows_of_blocks(kSizes);
  ASSERT_TRUE(fresh.read_numbers(1, room));  // the columns are those of block 0
  EXPECT_EQ(calls, 2);
  std::int64_t first = 0;
  std::memcpy(&first, memory.data(), sizeof first);
  EXPECT_EQ(first, kSizes[0]);
  EXPECT_FALSE(fresh.read_numbers(0, room));
  EXPECT_EQ(calls, 2);
}

TEST(Map, ThatKeepsRowsIsNotCounted) {
  const auto same = map(numbers(), [](const std::shared_ptr<arrow::Table>& table, std::size_t) { return table; },
                        {.name = "same", .keeps_rows = true});
  EXPECT_TRUE(same->is_counted());
  EXPECT_EQ(same->rows_of_blocks(), kSizes);
  const auto liar = map(numbers(), multiples(2), {.name = "even", .keeps_rows = true});
  EXPECT_THROW(all_values(liar), ConfigError);
}

TEST(Map, TakesOverRowsThatAnotherProcessCounted) {
  std::atomic<int> calls = 0;
  const auto counted = map(numbers(), multiples(3), {.name = "third"});
  const auto fresh = map(numbers(), multiples(3, &calls), {.name = "third"});
  fresh->set_rows_of_blocks(counted->rows_of_blocks());
  EXPECT_TRUE(fresh->is_counted());
  EXPECT_EQ(Dataset(fresh).fingerprint(), Dataset(counted).fingerprint());
  EXPECT_EQ(calls, 0);
}

TEST(Map, ThreadsThatWantTheSameBlockShareIt) {
  std::atomic<int> calls = 0;
  const auto slow = map(numbers({100}),
                        [&](const std::shared_ptr<arrow::Table>& table, std::size_t) {
                          ++calls;
                          std::this_thread::sleep_for(std::chrono::milliseconds(20));
                          return table;
                        },
                        {.name = "slow"});
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) threads.emplace_back([&] { EXPECT_EQ(slow->rows_of_block(0), 100); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, 1);
}

TEST(Whole, IsMadeOnceAndWhenItIsNeeded) {
  int calls = 0;
  const auto reversed = whole(numbers(),
                              [&](const std::shared_ptr<arrow::Table>& table) {
                                ++calls;
                                return table;
                              },
                              {.description = "same", .keeps_rows = true, .keeps_schema = true, .blocks = 5});
  EXPECT_TRUE(reversed->is_counted());
  EXPECT_THAT(reversed->rows_of_blocks(), ElementsAre(59, 59, 59, 59, 58));
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(all_values(reversed), from_to(0, 294));
  EXPECT_EQ(all_values(reversed, 1)[3], -3);
  EXPECT_EQ(calls, 1);
}

TEST(ShuffledRows, AreAPermutation) {
  auto found = all_values(shuffle_rows(numbers(), 3, 0));
  EXPECT_EQ(found, all_values(shuffle_rows(numbers(), 3, 4)));
  EXPECT_NE(found, all_values(shuffle_rows(numbers(), 4, 0)));
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, from_to(0, 294));
}

TEST(Stream, GivesBatchesAcrossBlocks) {
  for (const std::int64_t size : {1, 7, 100, 1000}) {
    Stream stream(Dataset(numbers()), {.batch_size = size, .drop_last = false, .prefetch = 3});
    stream.start();
    std::int64_t rows = 0;
    while (const auto batch = stream.next()) {
      EXPECT_EQ(batch->num_rows(), std::min(size, 294 - rows));
      EXPECT_EQ(static_cast<const arrow::Int64Array&>(*batch->column(0)).Value(0), rows);
      rows += batch->num_rows();
    }
    EXPECT_EQ(rows, 294);
    EXPECT_EQ(stream.next(), nullptr);
  }
  Stream full(Dataset(numbers()), {.batch_size = 100, .drop_last = true, .prefetch = 1});
  full.start();
  int batches = 0;
  while (full.next()) ++batches;
  EXPECT_EQ(batches, 2);
  EXPECT_THROW(Stream(Dataset(numbers()), {.prefetch = 0}), ConfigError);
}

TEST(Stats, TellWhatEachStepDid) {
  const auto slow = [](const std::shared_ptr<arrow::Table>& table, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return table;
  };
  const auto few = filter(map(numbers({100, 100}), slow, {.name = "slow"}), less("n", 50));
  EXPECT_EQ(all_values(few).size(), 50u);
  const auto steps = stats_of(*few);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, "numbers");
  EXPECT_EQ(steps[0].rows, 200);
  EXPECT_EQ(steps[0].bytes, 200 * 2 * 8);
  EXPECT_EQ(steps[1].step, "slow");
  EXPECT_EQ(steps[1].rows, 200);
  EXPECT_GE(steps[1].time, std::chrono::milliseconds(5));
  EXPECT_EQ(steps[2].rows, 50);
  EXPECT_LT(steps[2].time + steps[0].time, steps[1].time) << "a step does not count the time of those before it";
}

TEST(Watch, EndsLongWork) {
  struct Stop : Watch {
    void tick(const std::string& step, std::int64_t done, std::int64_t total) override {
      EXPECT_THAT(step, HasSubstr("even"));
      EXPECT_EQ(total, 100);
      if (done == 10) throw ConfigError("stopped");
    }
  } stop;
  const auto source = numbers(Numbers(100, 10));
  const auto even = map(source, multiples(2), {.name = "even"});
  {
    const Watch::Scope scope(stop);
    EXPECT_THROW(even->rows_of_blocks(), ConfigError);
  }
  EXPECT_LT(source->all_reads(), 30);
  EXPECT_EQ(Dataset(even).count(), 500);
}

TEST(Steps, IteratorsFollowTheFormulaForEveryWorldSize) {
  const auto source = numbers();
  const auto third = filter(map(source, multiples(3), {.name = "third"}), less("n", 200));
  const Dataset dataset(third);
  const OrderOptions order{true, 4, 20};
  const auto epoch_of = [&](int rank, int world) {
    Iterator iterator(dataset, {order, rank, world, Tail::uneven, 2});
    const auto pass = iterator.begin(5, false);
    std::vector<Numbers> batches;
    while (const auto batch = iterator.next(*pass))
      batches.push_back(values(*value_of(arrow::Table::FromRecordBatches({batch}), "a batch")));
    return batches;
  };
  Numbers whole;
  for (const auto& batch : epoch_of(0, 1)) whole.insert(whole.end(), batch.begin(), batch.end());
  EXPECT_EQ(whole.size(), 67u);
  for (const int world : {2, 3, 4, 8}) {
    std::vector<std::vector<Numbers>> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(epoch_of(rank, world));
    Numbers found;
    for (std::size_t n = 0; n < ranks.front().size(); ++n)
      for (const auto& rank : ranks)
        if (n < rank.size()) found.insert(found.end(), rank[n].begin(), rank[n].end());
    EXPECT_EQ(found, whole) << world;
  }
}

}  // namespace
}  // namespace lockstep::data
