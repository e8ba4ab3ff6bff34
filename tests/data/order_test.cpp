#include "data/order.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

namespace lockstep::data {
namespace {

const std::vector<std::vector<std::int64_t>> kBlocks{
    {}, {1}, {5}, {3, 1, 4, 1, 5}, {100, 1, 1, 1}, {7, 7, 7, 7, 7, 7, 7}};

std::int64_t total_of(const std::vector<std::int64_t>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
}

/// Every row of every place, as its number in the data set.
std::vector<std::int64_t> sequence(const std::vector<std::int64_t>& blocks, const OrderOptions& options,
                                   std::int64_t epoch) {
  const EpochOrder order(blocks, options, epoch);
  std::vector<std::int64_t> begins(blocks.size(), 0), found;
  for (std::size_t n = 1; n < blocks.size(); ++n) begins[n] = begins[n - 1] + blocks[n - 1];
  for (std::int64_t place = 0; place < order.total(); ++place) {
    const Part row = order.row(place);
    EXPECT_EQ(row.count, 1);
    found.push_back(begins[row.block] + row.first);
  }
  return found;
}

bool is_permutation_of(std::vector<std::int64_t> found, std::int64_t total) {
  std::sort(found.begin(), found.end());
  for (std::int64_t n = 0; n < total; ++n)
    if (found.size() != static_cast<std::size_t>(total) || found[static_cast<std::size_t>(n)] != n) return false;
  return true;
}

TEST(EpochOrder, HasEveryRowOnce) {
  for (const auto& blocks : kBlocks)
    for (const std::int64_t window : {1, 2, 3, 10, 64, 100'000})
      for (const std::int64_t epoch : {0, 1})
        EXPECT_TRUE(is_permutation_of(sequence(blocks, {true, 7, window}, epoch), total_of(blocks)))
            << blocks.size() << " blocks, window " << window;
}

TEST(EpochOrder, KeepsTheOrderWithoutShuffle) {
  for (const auto& blocks : kBlocks) {
    std::vector<std::int64_t> expected(static_cast<std::size_t>(total_of(blocks)));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(sequence(blocks, {false, 0, 10}, 3), expected);
  }
}

TEST(EpochOrder, IsTheSameEverywhere) {
  EXPECT_EQ(sequence({2, 3, 2, 3}, {true, 0, 4}, 0), (std::vector<std::int64_t>{8, 9, 5, 7, 3, 2, 4, 6, 1, 0}));
}

TEST(EpochOrder, DependsOnSeedEpochAndWindow) {
  const std::vector<std::int64_t> blocks(20, 5);
  const auto first = sequence(blocks, {true, 0, 50}, 0);
  EXPECT_EQ(first, sequence(blocks, {true, 0, 50}, 0));
  EXPECT_NE(first, sequence(blocks, {true, 1, 50}, 0));
  EXPECT_NE(first, sequence(blocks, {true, 0, 50}, 1));
  EXPECT_NE(first, sequence(blocks, {true, 0, 51}, 0));
}

TEST(EpochOrder, PartsAndPermutedAgreeWithRow) {
  const std::vector<std::int64_t> blocks{3, 10, 1, 8, 2, 30};
  for (const bool shuffle : {false, true}) {
    const EpochOrder order(blocks, {shuffle, 5, 12}, 2);
    for (std::int64_t begin = 0; begin < order.total();) {
      const Range unit = order.unit_at(begin);
      ASSERT_EQ(unit.begin, begin);
      ASSERT_EQ(order.unit_at(unit.end - 1), unit);
      std::vector<Part> rows;
      for (const Part& part : order.parts_of(unit))
        for (std::int64_t n = 0; n < part.count; ++n) rows.push_back({part.block, part.first + n, 1});
      ASSERT_EQ(static_cast<std::int64_t>(rows.size()), unit.size());
      const auto places = order.permuted(unit, std::array{unit});
      for (std::int64_t place = unit.begin; place < unit.end; ++place)
        EXPECT_EQ(rows[static_cast<std::size_t>(places[static_cast<std::size_t>(place - unit.begin)])],
                  order.row(place));
      begin = unit.end;
    }
  }
}

// A window as large as the data: every row is about equally often at every place. The statistic has 11 x 11 degrees of
// freedom and exceeds 200 about once in 100000 tries of a fair shuffle.
TEST(EpochOrder, IsFair) {
  constexpr std::size_t kRows = 12;
  constexpr double kEpochs = 12000, kExpected = kEpochs / kRows;
  double counts[kRows][kRows] = {};
  for (std::int64_t epoch = 0; epoch < static_cast<std::int64_t>(kEpochs); ++epoch) {
    const auto found = sequence({4, 3, 5}, {true, 1, 100}, epoch);
    for (std::size_t place = 0; place < kRows; ++place) ++counts[place][found[place]];
  }
  double chi_square = 0;
  for (const auto& row : counts)
    for (const double count : row) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  EXPECT_LT(chi_square, 200);
}

TEST(EpochOrder, RefusesAnEmptyWindow) {
  EXPECT_THROW(EpochOrder(std::vector<std::int64_t>{1}, {true, 0, 0}, 0), ConfigError);
}

TEST(GeneratorSeed, IsTheSameEverywhere) {
  EXPECT_EQ(generator_seed(0, 0), 8449514215880780645u);
  EXPECT_EQ(generator_seed(7, 3), 2600348547205184828u);
  EXPECT_EQ(generator_seed(0, 0, 0), 1046648171933297141u);
  EXPECT_EQ(generator_seed(7, 3, 2), 489860463864824660u);
  EXPECT_EQ(generator_seed(UINT64_MAX, UINT64_MAX), 8931140498285671340u);
}

std::vector<std::int64_t> samples(const SampleOrder& order) {
  std::vector<std::int64_t> found;
  for (std::int64_t place = 0; place < order.size(); ++place) found.push_back(order(place));
  return found;
}

TEST(SampleOrder, HasEverySampleOnce) {
  using enum SampleOrder::Kind;
  for (const auto kind : {sequential, permuted, shuffled})
    for (const std::int64_t size : {0, 1, 2, 3, 100, 10'000}) {
      const SampleOrder order(kind, size, 3, 1);
      EXPECT_EQ(order.size(), size);
      EXPECT_TRUE(is_permutation_of(samples(order), size)) << size;
    }
}

// python/tests/torch has the same numbers, and compares with torch.
TEST(SampleOrder, IsTheSameEverywhere) {
  using enum SampleOrder::Kind;
  using Samples = std::vector<std::int64_t>;
  EXPECT_EQ(samples({sequential, 4, 7, 3}), (Samples{0, 1, 2, 3}));
  EXPECT_EQ(samples({shuffled, 10, 0, 0}), (Samples{2, 0, 1, 3, 8, 4, 5, 6, 7, 9}));
  EXPECT_EQ(samples({shuffled, 10, 7, 3}), (Samples{8, 4, 7, 1, 0, 6, 9, 5, 2, 3}));
  const detail::Permutation permutation(50, detail::mixed(7, 3));
  const SampleOrder permuted_order(permuted, 50, 7, 3);
  for (std::uint64_t place = 0; place < 50; ++place)
    EXPECT_EQ(permuted_order(static_cast<std::int64_t>(place)), static_cast<std::int64_t>(permutation(place)));
  EXPECT_EQ(samples(SampleOrder({5, 5, 1})), (Samples{5, 5, 1}));
}

TEST(SampleOrder, HasANameForStates) {
  using enum SampleOrder::Kind;
  EXPECT_EQ(SampleOrder::name(sequential, 4), "sequential");
  EXPECT_EQ(SampleOrder::name(permuted, 4), "permuted, seed 4");
  EXPECT_EQ(SampleOrder::name(shuffled, UINT64_MAX), "shuffled, seed 18446744073709551615");
}

/// The places of all ranks, batch by batch in turn.
std::vector<std::int64_t> dealt(std::int64_t total, std::int64_t start, DealOptions options, std::int64_t rounds = -1) {
  std::vector<std::int64_t> found;
  for (std::int64_t n = 0; n != rounds; ++n) {
    const auto size = found.size();
    for (options.rank = 0; options.rank < options.world; ++options.rank) {
      const Deal deal(total, start, options);
      if (n >= deal.batches()) continue;
      const Range batch = deal.batch(n);
      EXPECT_GT(batch.size(), 0);
      EXPECT_LE(batch.size(), options.batch_size);
      for (std::int64_t place = batch.begin; place < batch.end; ++place) found.push_back(place);
    }
    if (found.size() == size) break;
  }
  return found;
}

std::vector<std::int64_t> places(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(std::max<std::int64_t>(to - from, 0)));
  std::iota(all.begin(), all.end(), from);
  return all;
}

TEST(Deal, EveryWorldSizeSeesTheSameSequence) {
  for (const std::int64_t total : {0, 1, 5, 24, 97})
    for (const int world : {1, 2, 3, 4, 8})
      for (const std::int64_t size : {1, 2, 5, 1000})
        for (const std::int64_t start : {std::int64_t{0}, total / 3, total}) {
          const auto all = places(start, total);
          EXPECT_EQ(dealt(total, start, {0, world, size, Tail::uneven}), all);
          const auto whole = total - (total - start) % (world * size);
          EXPECT_EQ(dealt(total, start, {0, world, size, Tail::drop}), places(start, whole));
          EXPECT_EQ(dealt(total, start, {0, world, size, Tail::pad, true}), places(start, whole));
          auto padded = dealt(total, start, {0, world, size, Tail::pad});
          ASSERT_GE(padded.size(), all.size());
          EXPECT_LT(padded.size() - all.size(), static_cast<std::size_t>(world));
          for (auto extra = padded.begin() + static_cast<std::ptrdiff_t>(all.size()); extra != padded.end(); ++extra)
            EXPECT_LT(*extra, total);
          padded.resize(all.size());
          EXPECT_EQ(padded, all);
        }
}

TEST(Deal, RanksGetEquallyManyBatches) {
  for (const std::int64_t total : {0, 1, 7, 24, 97})
    for (const int world : {2, 3, 8})
      for (const std::int64_t size : {1, 5, 1000})
        for (const Tail tail : {Tail::pad, Tail::drop})
          for (int rank = 1; rank < world; ++rank)
            EXPECT_EQ(Deal(total, 0, {rank, world, size, tail}).batches(),
                      Deal(total, 0, {0, world, size, tail}).batches());
}

TEST(Deal, DropLastDropsBatchesThatAreNotFull) {
  EXPECT_EQ(dealt(11, 0, {0, 2, 4, Tail::uneven, true}), places(0, 8));
  EXPECT_EQ(dealt(14, 0, {0, 2, 4, Tail::uneven, true}), places(0, 12));
  EXPECT_EQ(dealt(11, 0, {0, 1, 4, Tail::pad, true}), places(0, 8));
}

TEST(Deal, ContinuesAnywhereWithAnyWorldSize) {
  std::mt19937 random(3);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int n = 0; n < 1000; ++n) {
    const std::int64_t total = pick(1, 200), size = pick(1, 20);
    const int world = static_cast<int>(pick(1, 8)), world_after = static_cast<int>(pick(1, 8));
    const Deal deal(total, 0, {0, world, size, Tail::pad});
    const std::int64_t rounds = pick(0, deal.batches() - 1);
    auto found = dealt(total, 0, {0, world, size, Tail::pad}, rounds);
    const auto rest = dealt(total, deal.position_after(rounds), {0, world_after, pick(1, 20), Tail::uneven});
    found.insert(found.end(), rest.begin(), rest.end());
    EXPECT_EQ(found, places(0, total));
  }
}

/// The places of all ranks in the first `rounds` batches of each if single rows are dealt, sorted.
std::vector<std::int64_t> dealt_by_rows(std::int64_t total, std::int64_t start, DealOptions options,
                                        std::int64_t rounds = INT64_MAX) {
  std::vector<std::int64_t> found;
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    const Deal deal(total, start, options);
    const Share share = deal.share();
    EXPECT_EQ((share.size() + options.batch_size - 1) / options.batch_size, deal.batches());
    const std::int64_t end = rounds < deal.batches() ? rounds * options.batch_size : share.size();
    for (std::int64_t n = 0; n < end; ++n) found.push_back(share.place(n));
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Deal, RowsAreDealtInTurn) {
  const Share first = Deal(9, 0, {.rank = 0, .world = 2, .batch_size = 2}).share();
  EXPECT_EQ((std::vector{first.first, first.step, first.count}), (std::vector<std::int64_t>{0, 2, 5}));
  EXPECT_FALSE(first.extra);
  const Share second = Deal(9, 0, {.rank = 1, .world = 2, .batch_size = 2}).share();
  EXPECT_EQ((std::vector{second.first, second.step, second.count}), (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(second.extra, 0);
  EXPECT_FALSE(Deal(7, 0, {.rank = 1, .world = 2, .batch_size = 2}).share().extra) << "its last batch is only smaller";
}

TEST(Deal, RowsArePaddedOnlyWhereABatchWouldBeMissing) {
  for (const std::int64_t total : {0, 1, 2, 5, 6, 7, 13, 29})
    for (const std::int64_t start : {std::int64_t{0}, total / 3, total, total + 1})
      for (const int world : {1, 2, 3, 4, 7})
        for (const std::int64_t size : {1, 2, 3, 5, 100}) {
          SCOPED_TRACE(testing::Message() << total << " rows from " << start << ", " << world << " ranks, " << size);
          const std::int64_t left = std::max<std::int64_t>(total - start, 0);
          const auto rows = [&](std::int64_t rank) {
            return std::max<std::int64_t>(left - rank + world - 1, 0) / world;
          };
          const auto batches = [&](std::int64_t rank) { return (rows(rank) + size - 1) / size; };
          auto expected = places(std::min(start, total), total);
          for (std::int64_t rank = 0; rank < world; ++rank)
            if (batches(rank) < batches(0)) expected.push_back((start + rank + rows(rank) * world) % total);
          std::sort(expected.begin(), expected.end());
          EXPECT_EQ(dealt_by_rows(total, start, {0, world, size, Tail::pad}), expected);
          const auto whole = start + left / (world * size) * world * size;
          EXPECT_EQ(dealt_by_rows(total, start, {0, world, size, Tail::pad, true}), places(start, whole));
          EXPECT_EQ(dealt_by_rows(total, start, {0, world, size, Tail::drop}), places(start, whole));
        }
}

TEST(Deal, PositionsAreThoseOfDealtRows) {
  for (const std::int64_t total : {1, 24, 97})
    for (const int world : {1, 2, 3, 8})
      for (const std::int64_t size : {1, 5}) {
        const DealOptions options{0, world, size, Tail::pad};
        const Deal deal(total, 3, options);
        for (std::int64_t n = 0; n < deal.batches(); ++n)
          EXPECT_EQ(dealt_by_rows(total, 3, options, n), places(3, deal.position_after(n)));
      }
}

TEST(Deal, IsOverAtTheEnd) {
  EXPECT_EQ(Deal(10, 0, {0, 2, 2, Tail::pad}).position_after(3), 10);
  EXPECT_EQ(Deal(10, 0, {0, 2, 2, Tail::drop}).position_after(2), 10);
  EXPECT_EQ(Deal(10, 0, {0, 2, 2, Tail::drop}).position_after(1), 4);
}

TEST(Deal, RefusesImpossibleOptions) {
  EXPECT_THROW(Deal(10, 0, {0, 1, 0}), ConfigError);
  EXPECT_THROW(Deal(10, 0, {0, 0, 1}), ConfigError);
  EXPECT_THROW(Deal(10, 0, {2, 2, 1}), ConfigError);
  EXPECT_THROW(Deal(10, 0, {-1, 2, 1}), ConfigError);
}

TEST(Deal, RefusesToDealRowsUnevenly) { EXPECT_THROW(Deal(10, 0, {0, 2, 2, Tail::uneven}).share(), InternalError); }

TEST(Deal, LargeBatchesDoNotOverflow) {
  EXPECT_EQ(dealt(10, 0, {0, 8, INT64_MAX, Tail::uneven}), places(0, 10));
  EXPECT_EQ(Deal(10, 0, {3, 8, INT64_MAX}).share().size(), 1);
  EXPECT_EQ(Deal(10, 0, {1, 8, INT64_MAX}).share().size(), 2);
}

}  // namespace
}  // namespace lockstep::data
