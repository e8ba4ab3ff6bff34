#include "data/shared_blocks.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

#include "data/numbers.h"
#include "data/status.h"
#include "data/steps.h"
#include "folder.h"

namespace lockstep::data {
namespace {

std::shared_ptr<SharedCache> fresh_cache(int ranks) {
  static int count = 0;
  return SharedCache::join("blocks-" + std::to_string(::getpid()) + "-" + std::to_string(count++), ranks, 1 << 20);
}

template <class Builder>
std::shared_ptr<arrow::Array> array_of(const std::vector<typename Builder::value_type>& values, bool with_null) {
  Builder builder;
  check(builder.AppendValues(values), "values");
  check(with_null ? builder.AppendNull() : builder.Append(values.front()), "values");
  return value_of(builder.Finish(), "values");
}

/// Two row groups of every type of numbers.
std::shared_ptr<arrow::Table> all_numbers(bool with_null = false) {
  return arrow::Table::Make(
      arrow::schema({arrow::field("i", arrow::int32()), arrow::field("l", arrow::int64()),
                     arrow::field("f", arrow::float32()), arrow::field("d", arrow::float64(), with_null)}),
      {array_of<arrow::Int32Builder>({1, 2, 3}, false), array_of<arrow::Int64Builder>({-1, 1L << 40, 3}, false),
       array_of<arrow::FloatBuilder>({0.5F, 1, 2}, false), array_of<arrow::DoubleBuilder>({1e300, 1, 2}, with_null)});
}

std::string parquet_of(const Folder& folder, const arrow::Table& table) {
  const auto path = folder.path("x.parquet");
  auto sink = value_of(arrow::io::FileOutputStream::Open(path), path);
  check(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink, 2), path);
  check(sink->Close(), path);
  return path;
}

const std::uint8_t* first_values(const arrow::Table& table) {
  return table.column(0)->chunk(0)->data()->buffers[1]->data();
}

class Blocks : public testing::TestWithParam<bool> {};

TEST_P(Blocks, AreTheSameForAllRanks) {
  const Folder folder;
  const Dataset dataset(open_parquet({parquet_of(folder, *all_numbers(GetParam()))}));
  const auto cache = fresh_cache(1);
  ASSERT_TRUE(cache);
  SharedBlocks one(cache, dataset, 0);
  for (std::size_t block = 0; block < 2; ++block) {
    const auto made = one.get(block, {}), got = one.get(block, {});
    EXPECT_TRUE(made.table->Equals(*dataset.read(block))) << made.table->ToString();
    EXPECT_TRUE(got.table->Equals(*made.table));
    EXPECT_TRUE(made.is_shared && got.is_shared);
    EXPECT_EQ(first_values(*made.table), first_values(*got.table));
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutNulls, Blocks, testing::Bool());

TEST(SharedBlocks, ALaterPassHasMemoryOfItsOwn) {
  const Folder folder;
  const Dataset dataset(open_parquet({parquet_of(folder, *all_numbers())}));
  const auto cache = fresh_cache(1);
  ASSERT_TRUE(cache);
  SharedBlocks first(cache, dataset, 0);
  const auto table = first.get(0, {}).table;
  const auto& buffer = *table->column(0)->chunk(0)->data()->buffers[1];
  *reinterpret_cast<std::int32_t*>(const_cast<std::uint8_t*>(buffer.data())) = 77;  // as a training loop may
  SharedBlocks second(cache, dataset, 0);
  EXPECT_TRUE(second.get(0, {}).table->Equals(*dataset.read(0)));
}

TEST(SharedBlocks, FunctionsWorkInTheMemoryOfAllRanks) {
  const Folder folder;
  const SourcePointer source = open_parquet({parquet_of(folder, *all_numbers())});
  const std::uint8_t* given = nullptr;
  int calls = 0;
  const auto same = [&](const std::shared_ptr<arrow::Table>& table, std::size_t) {
    ++calls;
    given = first_values(*table);
    return table;
  };
  const Dataset dataset(map(source, same, {.name = "same", .keeps_rows = true}));
  dataset.schema();
  calls = 0;
  SharedBlocks blocks(fresh_cache(1), dataset, 0);
  const auto got = blocks.get(1, {});
  EXPECT_TRUE(got.is_shared && got.table->Equals(*source->read(1, {0, 1, 2, 3}))) << got.table->ToString();
  EXPECT_EQ(first_values(*got.table), given) << "nothing is copied";
  EXPECT_EQ(calls, 1);
}

TEST(SharedBlocks, OtherNumbersOfFunctionsAreCopiedOnce) {
  const Folder folder;
  const SourcePointer source = open_parquet({parquet_of(folder, *all_numbers())});
  int calls = 0;
  const auto other = [&](const std::shared_ptr<arrow::Table>&, std::size_t block) {
    ++calls;
    return source->read(1 - block, {0, 1, 2, 3});
  };
  const Dataset dataset(map(source, other, {.name = "other", .keeps_rows = true}));
  dataset.schema();
  calls = 0;
  SharedBlocks blocks(fresh_cache(1), dataset, 0);
  for (const std::size_t block : {0, 1})
    EXPECT_TRUE(blocks.get(block, {}).table->Equals(*source->read(1 - block, {0, 1, 2, 3})));
  EXPECT_EQ(calls, 1) << "the first block was kept when the columns were found";
}

TEST(SharedBlocks, WhatAFunctionKeepsStaysAsItWas) {
  const Folder folder;
  const SourcePointer source = open_parquet({parquet_of(folder, *all_numbers())});
  std::vector<std::shared_ptr<arrow::Table>> kept;
  const auto keep = [&](const std::shared_ptr<arrow::Table>& table, std::size_t) {
    kept.push_back(table);
    return table;
  };
  const Dataset dataset(map(source, keep, {.name = "keep", .keeps_rows = true}));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    SharedBlocks blocks(fresh_cache(1), dataset, epoch);
    for (const std::size_t block : {0, 1}) {
      const auto got = blocks.get(block, {});
      EXPECT_TRUE(got.table->Equals(*source->read(block, {0, 1, 2, 3})));
      *const_cast<std::uint8_t*>(first_values(*got.table)) = 77;  // as a training loop may
    }
  }
  for (const auto& table : kept)
    EXPECT_TRUE(table->Equals(*source->read(0, {0, 1, 2, 3})) || table->Equals(*source->read(1, {0, 1, 2, 3})))
        << table->ToString();
}

TEST(SharedBlocks, SelectedColumnsAreReadAlone) {
  const Folder folder;
  const auto dataset = Dataset(open_parquet({parquet_of(folder, *all_numbers())})).select_columns({"d", "i"});
  std::vector<std::byte> memory(aligned_bytes(*dataset.schema(), 2));
  ASSERT_EQ(memory.size(), 128U);
  ASSERT_TRUE(dataset.read_numbers(0, {memory}));
  const auto buffer = arrow::Buffer::Wrap(memory);
  EXPECT_TRUE(table_of_numbers(dataset.schema(), 2, buffer)->Equals(*dataset.read(0)));
}

TEST(SharedBlocks, OtherTypesAreNotReadAsNumbers) {
  const auto schema = arrow::schema({arrow::field("i", arrow::int32()), arrow::field("t", arrow::utf8())});
  EXPECT_EQ(aligned_bytes(*schema, 10), 0U);
}

}  // namespace
}  // namespace lockstep::data
