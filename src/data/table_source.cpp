#include <arrow/array/array_primitive.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <numeric>

#include "data/schemas.h"
#include "data/source.h"
#include "data/status.h"
#include "data/steps.h"

namespace lockstep::data {
namespace {

class TableSource final : public Source {
 public:
  TableSource(std::shared_ptr<arrow::Table> table, std::string name)
      : table_(std::move(table)),
        name_(std::move(name)),
        schema_(table_->schema()->RemoveMetadata()),
        rows_(even_blocks(table_->num_rows())) {}

  std::string description() const override { return name_ + ": in memory"; }
  // Column names and types stand for the values, which would take long to hash.
  std::string identity() const override { return "table\n" + schema_->ToString(); }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return rows_; }
  bool is_borrowed() const override { return true; }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const auto selected = value_of(table_->SelectColumns(columns), name_);
    return selected->Slice(static_cast<std::int64_t>(block) * kRowsOfBlock, rows_[block]);
  }

 private:
  std::shared_ptr<arrow::Table> table_;
  std::string name_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::int64_t> rows_;
};

class RangeSource final : public Source {
 public:
  explicit RangeSource(std::int64_t count)
      : count_(count), schema_(arrow::schema({arrow::field("id", arrow::int64())})), rows_(even_blocks(count)) {}

  std::string description() const override { return "range: " + std::to_string(count_); }
  std::string identity() const override { return "range"; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return rows_; }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const std::int64_t rows = rows_[block];
    std::shared_ptr<arrow::Buffer> buffer =
        value_of(arrow::AllocateBuffer(rows * static_cast<std::int64_t>(sizeof(std::int64_t))), "range");
    auto* numbers = reinterpret_cast<std::int64_t*>(buffer->mutable_data());
    std::iota(numbers, numbers + rows, static_cast<std::int64_t>(block) * kRowsOfBlock);
    const auto array = std::make_shared<arrow::Int64Array>(rows, buffer);
    return value_of(arrow::Table::Make(schema_, {array})->SelectColumns(columns), "range");
  }

 private:
  std::int64_t count_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::int64_t> rows_;
};

}  // namespace

std::shared_ptr<Source> open_table(ArrowArrayStream* stream, const std::string& name) {
  const auto reader = value_of(arrow::ImportRecordBatchReader(stream), name);
  return std::make_shared<TableSource>(value_of(reader->ToTable(), name), name);
}

std::shared_ptr<Source> open_range(std::int64_t count) {
  if (count < 0) throw ConfigError("[data] range() got " + std::to_string(count) + "; it must be 0 or more");
  return std::make_shared<RangeSource>(count);
}

}  // namespace lockstep::data
