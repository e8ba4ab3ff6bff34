#include "data/gather.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::data {
namespace {

template <class Builder, class Value>
std::shared_ptr<arrow::Array> array(const std::vector<Value>& values) {
  Builder builder;
  for (const Value& value : values) EXPECT_TRUE(builder.Append(value).ok());
  return *builder.Finish();
}

/// Columns of several widths, and some that Arrow has to copy.
std::shared_ptr<arrow::Table> table(std::int64_t first, std::int64_t rows) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), first);
  std::vector<float> floats(numbers.begin(), numbers.end());
  std::vector<std::int8_t> small(numbers.begin(), numbers.end());
  std::vector<bool> even;
  std::vector<std::string> texts;
  arrow::Int16Builder nulls;
  for (const std::int64_t number : numbers) {
    even.push_back(number % 2 == 0);
    texts.push_back(std::to_string(number));
    EXPECT_TRUE((number % 3 == 0 ? nulls.AppendNull() : nulls.Append(static_cast<std::int16_t>(number))).ok());
  }
  const auto schema = arrow::schema({arrow::field("text", arrow::utf8()), arrow::field("int64", arrow::int64()),
                                     arrow::field("float", arrow::float32()), arrow::field("bool", arrow::boolean()),
                                     arrow::field("int8", arrow::int8()), arrow::field("nulls", arrow::int16())});
  return arrow::Table::Make(schema, {array<arrow::StringBuilder>(texts), array<arrow::Int64Builder>(numbers),
                                     array<arrow::FloatBuilder>(floats), array<arrow::BooleanBuilder>(even),
                                     array<arrow::Int8Builder>(small), *nulls.Finish()});
}

std::shared_ptr<arrow::RecordBatch> expected(const std::vector<std::int64_t>& rows) {
  arrow::RecordBatchVector batches;
  for (const std::int64_t row : rows) batches.push_back(*table(row, 1)->CombineChunksToBatch());
  return *arrow::ConcatenateRecordBatches(batches);
}

TEST(GatherTest, RowsOfOneTable) {
  const auto memory = std::make_shared<ReusedMemory>(1);
  const std::vector<std::int64_t> rows{5, 0, 5, 9};
  EXPECT_TRUE(gathered({table(0, 10)}, rows, *memory)->Equals(*expected(rows)));
  EXPECT_TRUE(gathered({table(100, 20)->Slice(7)}, rows, *memory)->Equals(*expected({112, 107, 112, 116})));
}

TEST(GatherTest, RowsOfSeveralTables) {
  const auto memory = std::make_shared<ReusedMemory>(1);
  const std::vector<std::int64_t> rows{12, 3, 29, 0, 10, 9, 25};
  const auto batch = gathered({table(0, 20)->Slice(0, 10), table(10, 10), table(0, 40)->Slice(20, 10)}, rows, *memory);
  EXPECT_TRUE(batch->Equals(*expected(rows)));
  EXPECT_TRUE(batch->ValidateFull().ok());
}

TEST(GatherTest, TablesWithoutColumnsKeepTheirRows) {
  const auto memory = std::make_shared<ReusedMemory>(1);
  const auto empty = arrow::Table::Make(arrow::schema({}), arrow::ChunkedArrayVector(), 4);
  EXPECT_EQ(gathered({empty}, std::vector<std::int64_t>{3, 1}, *memory)->num_rows(), 2);
}

TEST(GatherTest, MemoryIsUsedAgainWhenNobodyHoldsIt) {
  const auto memory = std::make_shared<ReusedMemory>(1);
  auto first = memory->get(1000);
  const auto* place = first->data();
  const auto slice = arrow::SliceBuffer(first, 10, 20);
  first.reset();
  EXPECT_NE(memory->get(1000)->data(), place);  // the slice holds it
}

TEST(GatherTest, MemoryComesBack) {
  const auto memory = std::make_shared<ReusedMemory>(1);
  auto buffer = memory->get(1000);
  const auto* place = buffer->data();
  buffer.reset();
  EXPECT_EQ(memory->get(900)->data(), place);
  EXPECT_NE(memory->get(100)->data(), place);  // much larger than needed: kept for others
}

TEST(GatherTest, BuffersOutliveTheMemory) {
  auto memory = std::make_shared<ReusedMemory>(1);
  const std::vector<std::int64_t> rows{1, 0};
  const auto batch = gathered({table(0, 2)}, rows, *memory);
  memory.reset();
  EXPECT_TRUE(batch->Equals(*expected(rows)));
}

}  // namespace
}  // namespace lockstep::data
