#include <lockstep/number_columns.h>

#include <arrow/api.h>
#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/json/from_string.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include "data/status.h"

namespace lockstep {
namespace {

using data::value_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Column = std::pair<std::shared_ptr<arrow::DataType>, std::string>;

/// A batch of the columns a, b and so on.
std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<Column>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [type, json] : columns) {
    fields.push_back(arrow::field(std::string(1, static_cast<char>('a' + fields.size())), type));
    arrays.push_back(value_of(arrow::json::ArrayFromJSONString(type, json), "a test"));
  }
  return arrow::RecordBatch::Make(arrow::schema(fields), arrays.front()->length(), arrays);
}

template <class Number>
std::vector<Number> numbers_of(const NumberColumn& column) {
  std::int64_t count = 1;
  for (const std::int64_t size : column.shape) count *= size;
  const auto* first = static_cast<const Number*>(column.data);
  return {first, first + count};
}

std::string refusal_of(const arrow::RecordBatch& batch, const std::vector<std::string>& wanted = {}) {
  try {
    number_columns(batch, wanted);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(NumberColumns, NumbersAreArrowsOwnMemory) {
  const auto batch = batch_of({{arrow::float64(), "[1.5, 2, 3, 4]"}, {arrow::uint16(), "[1, 2, 3, 65535]"}});
  const auto columns = number_columns(*batch->Slice(1, 2), {"b", "a"});
  ASSERT_EQ(columns.size(), 2U);
  EXPECT_EQ(columns[0].name, "b");
  EXPECT_EQ(columns[0].dtype, "uint16");
  EXPECT_THAT(columns[0].shape, ElementsAre(2));
  EXPECT_THAT(numbers_of<std::uint16_t>(columns[0]), ElementsAre(2, 3));
  EXPECT_EQ(columns[1].dtype, "float64");
  EXPECT_THAT(numbers_of<double>(columns[1]), ElementsAre(2, 3));
  const auto& array = static_cast<const arrow::DoubleArray&>(*batch->column(0));
  EXPECT_EQ(columns[1].data, array.raw_values() + 1);
}

TEST(NumberColumns, OutliveTheirBatch) {
  auto batch = batch_of({{arrow::int64(), "[1, 2, 3]"}, {arrow::boolean(), "[true, false, true]"}});
  const auto columns = number_columns(*batch);
  batch.reset();
  EXPECT_THAT(numbers_of<std::int64_t>(columns[0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of<std::uint8_t>(columns[1]), ElementsAre(1, 0, 1));
}

TEST(NumberColumns, EveryTypeHasNumpysName) {
  const std::vector<std::pair<std::shared_ptr<arrow::DataType>, std::string>> types{
      {arrow::boolean(), "bool"},    {arrow::int8(), "int8"},       {arrow::int16(), "int16"},
      {arrow::int32(), "int32"},     {arrow::int64(), "int64"},     {arrow::uint8(), "uint8"},
      {arrow::uint16(), "uint16"},   {arrow::uint32(), "uint32"},   {arrow::uint64(), "uint64"},
      {arrow::float16(), "float16"}, {arrow::float32(), "float32"}, {arrow::float64(), "float64"}};
  for (const auto& [type, name] : types) {
    const auto columns = number_columns(*batch_of({{type, "[]"}}));
    EXPECT_EQ(columns.at(0).dtype, name);
    EXPECT_THAT(columns.at(0).shape, ElementsAre(0));
  }
}

TEST(NumberColumns, FixedSizeListsHaveMoreDimensions) {
  const auto pairs = arrow::fixed_size_list(arrow::float32(), 2);
  const auto batch = batch_of({{pairs, "[[1, 2], [3, 4], [5, 6]]"},
                               {arrow::fixed_size_list(pairs, 1), "[[[1, 2]], [[3, 4]], [[5, 6]]]"},
                               {arrow::fixed_size_list(arrow::boolean(), 3),
                                "[[true, true, true], [false, true, false], [true, false, false]]"}});
  const auto columns = number_columns(*batch->Slice(1));
  EXPECT_THAT(columns[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(numbers_of<float>(columns[0]), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(columns[1].shape, ElementsAre(2, 1, 2));
  EXPECT_THAT(numbers_of<float>(columns[1]), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(columns[2].shape, ElementsAre(2, 3));
  EXPECT_THAT(numbers_of<std::uint8_t>(columns[2]), ElementsAre(0, 1, 0, 1, 0, 0));
}

TEST(NumberColumns, TensorsHaveTheirShape) {
  const auto storage = value_of(
      arrow::json::ArrayFromJSONString(arrow::fixed_size_list(arrow::int32(), 4), "[[1, 2, 3, 4], [5, 6, 7, 8]]"), "");
  const auto batch_with = [&](const std::vector<std::int64_t>& permutation) {
    const auto type = arrow::extension::fixed_shape_tensor(arrow::int32(), {2, 2}, permutation);
    return arrow::RecordBatch::Make(arrow::schema({arrow::field("a", type)}), 2,
                                    arrow::ArrayVector{arrow::ExtensionType::WrapArray(type, storage)});
  };
  for (const auto& permutation : {std::vector<std::int64_t>(), {0, 1}}) {
    const auto column = number_columns(*batch_with(permutation)->Slice(1)).at(0);
    EXPECT_THAT(column.shape, ElementsAre(1, 2, 2));
    EXPECT_THAT(numbers_of<std::int32_t>(column), ElementsAre(5, 6, 7, 8));
  }
  EXPECT_THAT(refusal_of(*batch_with({1, 0})), HasSubstr("the column \"a\" is extension"));
}

TEST(NumberColumns, OtherColumnsAreRefusedByName) {
  const auto batch = batch_of({{arrow::int64(), "[1, 2]"},
                               {arrow::utf8(), R"(["x", "y"])"},
                               {arrow::list(arrow::int64()), "[[1], [2, 3]]"},
                               {arrow::fixed_size_list(arrow::utf8(), 1), R"([["x"], ["y"]])"},
                               {arrow::timestamp(arrow::TimeUnit::SECOND), "[1, 2]"}});
  EXPECT_EQ(refusal_of(*batch, {"a"}), "");
  EXPECT_THAT(refusal_of(*batch), AllOf(HasSubstr("the column \"b\" is string"), HasSubstr("leave it out")));
  EXPECT_THAT(refusal_of(*batch, {"c"}), HasSubstr("the column \"c\" is list"));
  EXPECT_THAT(refusal_of(*batch, {"d"}), HasSubstr("the column \"d\" is fixed_size_list"));
  EXPECT_THAT(refusal_of(*batch, {"e"}), HasSubstr("the column \"e\" is timestamp"));
  EXPECT_THAT(refusal_of(*batch, {"aa"}), HasSubstr("there is no column \"aa\"; the columns are a, "));
  EXPECT_THROW(number_column_names(*batch->schema()), ConfigError);
  EXPECT_THROW(number_column_names(*batch->schema(), {"z"}), ConfigError);
  EXPECT_THAT(number_column_names(*batch->schema(), {"a"}), ElementsAre("a"));
}

TEST(NumberColumns, NullsAreRefusedWhereTheyAre) {
  const auto batch = batch_of({{arrow::int64(), "[1, 2, null]"},
                               {arrow::fixed_size_list(arrow::int64(), 1), "[[1], [2], null]"},
                               {arrow::fixed_size_list(arrow::int64(), 1), "[[1], [2], [null]]"}});
  EXPECT_THAT(refusal_of(*batch, {"a"}), HasSubstr("a batch of the column \"a\" has 1 null, which"));
  EXPECT_THAT(refusal_of(*batch, {"b"}), HasSubstr("\"b\" has 1 null"));
  EXPECT_THAT(refusal_of(*batch, {"c"}), HasSubstr("\"c\" has 1 null"));
  EXPECT_EQ(refusal_of(*batch->Slice(0, 2)), "");
}

}  // namespace
}  // namespace lockstep
