#include "data/shared_table.h"

#include <arrow/api.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/status.h"
#include "data/steps.h"

namespace lockstep::data {
namespace {

/// As so many ranks have it.
std::vector<std::shared_ptr<SharedCache>> joined_caches(int ranks, std::size_t capacity = 1 << 20) {
  static int count = 0;
  const std::string name = "tables-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  std::vector<std::shared_ptr<SharedCache>> caches;
  for (int rank = 0; rank < ranks; ++rank) caches.push_back(SharedCache::join(name, ranks, capacity));
  return caches;
}

std::shared_ptr<arrow::Table> some_rows() {
  arrow::Int64Builder numbers;
  arrow::StringBuilder texts;
  check(numbers.AppendValues({3, 1, 2}), "rows");
  check(texts.AppendValues({"c", "a", "b"}), "rows");
  check(texts.AppendNull(), "rows");
  check(numbers.AppendNull(), "rows");
  return arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int64()), arrow::field("t", arrow::utf8())}),
                            {value_of(numbers.Finish(), "rows"), value_of(texts.Finish(), "rows")});
}

const std::uint8_t* place(const arrow::Table& table) { return table.column(0)->chunk(0)->data()->buffers[1]->data(); }

TEST(SharedTable, OneRankMakesItForAll) {
  const auto caches = joined_caches(3);
  std::atomic<int> made = 0;
  std::vector<std::shared_ptr<arrow::Table>> got(3);
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < 3; ++rank)
      ranks.emplace_back([&, rank] {
        ASSERT_TRUE(caches[rank]);
        got[rank] = SharedTable(caches[rank], 7).get("a step", [&] {
          ++made;
          return some_rows();
        });
      });
  }
  EXPECT_EQ(made, 1);
  for (const auto& table : got) EXPECT_TRUE(table->Equals(*some_rows()));
  // Each rank maps the memory at a place of its own; a second look of one is at the same.
  const auto again = SharedTable(caches[0], 7).get("a step", [] { return some_rows(); });
  EXPECT_EQ(place(*again), place(*got[0]));
}

TEST(SharedTable, AnotherRankGoesOnIfOneFails) {
  const auto caches = joined_caches(2);
  const SharedTable one(caches[0], 0), two(caches[1], 0);
  EXPECT_THROW(one.get("a step", []() -> std::shared_ptr<arrow::Table> { throw ConfigError("no"); }), ConfigError);
  EXPECT_TRUE(two.get("a step", some_rows)->Equals(*some_rows()));
  EXPECT_TRUE(
      one.get("a step", []() -> std::shared_ptr<arrow::Table> { throw ConfigError("no"); })->Equals(*some_rows()));
}

TEST(SharedTable, WithoutRoomEachRankMakesItsOwn) {
  const auto caches = joined_caches(2, 64);
  int made = 0;
  for (const auto& cache : caches) {
    const auto table = SharedTable(cache, 0).get("a step", [&] {
      arrow::Int64Builder numbers;
      check(numbers.AppendValues(std::vector<std::int64_t>(100'000, ++made)), "rows");
      return arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int64())}),
                                {value_of(numbers.Finish(), "rows")});
    });
    EXPECT_EQ(table->num_rows(), 100'000);
  }
  EXPECT_EQ(made, 2);
}

TEST(SharedTable, StepsOfAPlanAreDoneOnce) {
  const auto caches = joined_caches(2);
  int made = 0;
  const auto plan = [&] {  // what each rank has: two steps, the first of which two data sets have in common
    const TableFunction count = [&](const std::shared_ptr<arrow::Table>& table) {
      ++made;
      return table;
    };
    const auto first = whole(open_range(50), count, {.description = "first", .keeps_schema = true});
    const auto second = whole(first, count, {.description = "second", .keeps_rows = true, .keeps_schema = true});
    return std::vector<SourcePointer>{first, slice(second, 10, 30, "slice")};
  };
  for (const auto& cache : caches) {
    const auto sources = plan();
    share_whole(sources, [&] { return cache; });
    EXPECT_EQ(read_all(*sources[1], "test")->num_rows(), 20);
    EXPECT_EQ(Dataset(sources[0]).count(), 50);
  }
  EXPECT_EQ(made, 2);
  share_whole({open_range(3)}, []() -> std::shared_ptr<SharedCache> {
    ADD_FAILURE() << "no step needs a cache";
    return nullptr;
  });
}

TEST(SharedTable, AStepThatGivesOtherRowsThanCountedIsAnError) {
  const auto source = whole(open_range(5), [](const auto& table) { return table->Slice(1); },
                            {.description = "odd", .keeps_schema = true});
  source->set_rows_of_blocks({5});
  try {
    source->read(0, {0});
    FAIL() << "nothing was noticed";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "[data] odd gave 4 rows, but before 5; it must always give the same ones");
  }
}

}  // namespace
}  // namespace lockstep::data
