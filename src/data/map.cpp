#include <arrow/array/array_base.h>
#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/compute/cast.h>
#include <arrow/compute/exec.h>
#include <arrow/datum.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/byte_size.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "data/counted_blocks.h"
#include "data/numbers.h"
#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

using TablePointer = std::shared_ptr<arrow::Table>;

bool has_unknown_types(const arrow::Schema& schema) {
  for (const auto& field : schema.fields())
    if (field->type()->id() == arrow::Type::NA) return true;
  return false;
}

/// A column as another type, without loss. Integers with nulls come as floats with NaN from numpy and pandas.
arrow::Result<std::shared_ptr<arrow::ChunkedArray>> cast_without_loss(
    const std::shared_ptr<arrow::ChunkedArray>& column, const std::shared_ptr<arrow::DataType>& type) {
  auto cast = arrow::compute::Cast(column, type);
  if (!cast.ok() && arrow::is_floating(column->type()->id()) && arrow::is_integer(type->id())) {
    ARROW_ASSIGN_OR_RAISE(const auto is_nan, arrow::compute::CallFunction("is_nan", {column}));
    const auto null = arrow::MakeNullScalar(column->type());
    ARROW_ASSIGN_OR_RAISE(const auto nulls, arrow::compute::CallFunction("if_else", {is_nan, null, column}));
    cast = arrow::compute::Cast(nulls, type);
  }
  ARROW_ASSIGN_OR_RAISE(const auto made, std::move(cast));
  return made.chunked_array();
}

/// A room as a buffer that functions may keep.
class RoomBuffer final : public arrow::MutableBuffer {
 public:
  explicit RoomBuffer(const Room& room)
      : arrow::MutableBuffer(reinterpret_cast<std::uint8_t*>(room.bytes.data()),
                             static_cast<std::int64_t>(room.bytes.size())),
        hold_(room.hold) {}

 private:
  const std::shared_ptr<const void> hold_;
};

/// The values of each column; nothing if they are not plain numbers in one piece.
std::optional<std::vector<std::span<const std::byte>>> values_of(const arrow::Table& table) {
  std::vector<std::span<const std::byte>> values;
  for (const auto& column : table.columns()) {
    if (column->num_chunks() != 1 || column->null_count() > 0) return std::nullopt;
    const arrow::ArrayData& data = *column->chunk(0)->data();
    const int width = data.type->byte_width();
    if (!data.buffers[1]) return std::nullopt;
    values.emplace_back(reinterpret_cast<const std::byte*>(data.buffers[1]->data() + data.offset * width),
                        static_cast<std::size_t>(data.length * width));
  }
  return values;
}

bool lie_within(std::span<const std::byte> bytes, std::span<const std::byte> room) {
  return bytes.data() < room.data() + room.size() && room.data() < bytes.data() + bytes.size();
}

/// Gives all tables of a step the same columns.
TablePointer conformed(const TablePointer& table, const std::shared_ptr<arrow::Schema>& schema,
                       const std::string& step) {
  if (table->schema()->Equals(*schema, false)) return arrow::Table::Make(schema, table->columns(), table->num_rows());
  std::vector<std::shared_ptr<arrow::ChunkedArray>> columns;
  for (const auto& field : schema->fields()) {
    const int found = table->schema()->GetFieldIndex(field->name());
    if (found < 0 || table->num_columns() != schema->num_fields())
      throw ConfigError("[data] " + step + " gave the columns " + joined(table->schema()->field_names(), ", ") +
                        ", but for other rows " + joined(schema->field_names(), ", ") +
                        "; it must always give the same ones");
    auto cast = cast_without_loss(table->column(found), field->type());
    if (!cast.ok())
      throw ConfigError("[data] " + step + " gave the column " + in_quotes(field->name()) + " as " +
                        table->column(found)->type()->ToString() + ", but for other rows as " +
                        field->type()->ToString() + "; it must always give the same types");
    columns.push_back(*cast);
  }
  return arrow::Table::Make(schema, std::move(columns), table->num_rows());
}

class MapSource final : public Step {
 public:
  MapSource(SourcePointer from, BlockFunction function, MapOptions options)
      : Step(std::move(from)), function_(std::move(function)), options_(std::move(options)) {}

  std::string description() const override { return options_.name; }
  bool knows_schema() const override {
    const std::lock_guard lock(mutex_);
    return schema_ != nullptr;
  }
  // The function may give memory that it still uses, and results may be kept.
  bool is_borrowed() const override { return true; }
  bool is_counted() const override { return options_.keeps_rows ? from_->is_counted() : rows_.is_complete(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    if (options_.keeps_rows) return from_->rows_of_blocks();
    return rows_.all(options_.name, from_->blocks(), [this](std::size_t block) { return rows_of_block(block); });
  }
  void set_rows_of_blocks(const std::vector<std::int64_t>& rows) const override { rows_.set_all(rows); }
  std::int64_t rows_of_block(std::size_t block) const override {
    if (options_.keeps_rows) return from_->rows_of_block(block);
    if (const auto known = rows_.rows(block)) return *known;
    return made(block, true)->num_rows();
  }
  std::vector<bool> may_match(const arrow::compute::Expression& /*filter*/) const override { return {}; }

  const std::shared_ptr<arrow::Schema>& schema() const override {
    {
      const std::lock_guard lock(mutex_);
      if (schema_) return schema_;
    }
    const std::lock_guard finding(finding_schema_);
    if (!knows_schema()) {
      auto found = found_schema();
      const std::lock_guard lock(mutex_);
      schema_ = std::move(found);
    }
    return schema_;  // does not change any more
  }

  TablePointer read(std::size_t block, const std::vector<int>& columns) const override {
    const auto& schema = this->schema();
    if (!options_.keeps_rows && rows_.rows(block) == 0) return empty_table(*schema, columns);
    const auto table = made(block, false);
    if (table->num_rows() == 0) return empty_table(*schema, columns);
    return value_of(conformed(table, schema, options_.name)->SelectColumns(columns), options_.name);
  }

  /// The function works where the rows shall be. Results that it hands on are not copied, others once.
  bool read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const override {
    const auto& schema = this->schema();
    if (!is_in_place_ || !room.hold || columns != all_columns(*schema) || !schema->Equals(*from_->schema(), false) ||
        rows_of_block(block) != from_->rows_of_block(block))
      return false;
    {
      const std::lock_guard lock(mutex_);
      if (kept_.contains(block)) return false;
    }
    if (!measured_numbers(*from_, block, columns, room)) return false;
    auto buffer = std::make_shared<RoomBuffer>(room);
    auto input = table_of_numbers(from_->schema(), from_->rows_of_block(block), buffer);
    const auto before = *values_of(*input);
    auto table = function_(input, block);
    input.reset();
    if (table->num_rows() == from_->rows_of_block(block) && table->schema()->Equals(*schema, false) &&
        put(std::move(table), before, room, buffer))
      return true;
    is_in_place_ = false;
    return false;
  }

 private:
  /// False if the result is not only the given columns or only others, or if the function keeps what it was given: then
  /// the room is not ours alone.
  static bool put(TablePointer table, const std::vector<std::span<const std::byte>>& into, const Room& room,
                  const std::shared_ptr<RoomBuffer>& buffer) {
    const auto values = values_of(*table);
    if (!values) return false;
    const bool is_same = std::equal(values->begin(), values->end(), into.begin(),
                                    [](const auto& a, const auto& b) { return a.data() == b.data(); });
    if (is_same) {
      table.reset();
      return buffer.use_count() == 1;
    }
    if (buffer.use_count() > 1 ||
        std::any_of(values->begin(), values->end(), [&](const auto& each) { return lie_within(each, room.bytes); }))
      return false;
    for (std::size_t column = 0; column < into.size(); ++column)
      std::memcpy(room.bytes.data() + (into[column].data() - room.bytes.data()), (*values)[column].data(),
                  (*values)[column].size());
    return true;
  }

  /// Of the first block that has rows. Columns that hold nothing but nulls there are looked for in more blocks.
  std::shared_ptr<arrow::Schema> found_schema() const {
    std::shared_ptr<arrow::Schema> found;
    std::size_t tried = 0;
    for (std::size_t block = 0; block < from_->blocks() && tried < 8; ++block) {
      const auto table = made(block, true);
      if (table->num_rows() == 0) continue;
      ++tried;
      if (!found || !has_unknown_types(*table->schema())) found = table->schema();
      if (!has_unknown_types(*found)) break;
    }
    if (!found && options_.may_be_empty)
      found = function_(empty_table(*from_->schema(), all_columns(*from_->schema())), 0)->schema();
    return (found ? found : from_->schema())->RemoveMetadata();
  }

  /// The result for a block; threads that want the same one at the same time share it.
  TablePointer made(std::size_t block, bool keep) const {
    std::promise<TablePointer> promise;
    std::shared_future<TablePointer> other;
    {
      const std::lock_guard lock(mutex_);
      if (const auto kept = kept_.find(block); kept != kept_.end()) return kept->second;
      if (const auto found = running_.find(block); found != running_.end())
        other = found->second;
      else
        running_.emplace(block, promise.get_future().share());
    }
    if (other.valid()) return other.get();
    try {
      auto table = computed(block);
      finish(block, table, keep);
      promise.set_value(table);
      return table;
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        running_.erase(block);
      }
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  TablePointer computed(std::size_t block) const {
    const Timed timed(meter());  // counting does not go through measured()
    const auto input = measured(*from_, block, all_columns(*from_->schema()));
    if (input->num_rows() == 0) return input;
    auto table = function_(input, block);
    if (options_.keeps_rows && table->num_rows() != input->num_rows())
      throw ConfigError("[data] " + options_.name + " gave " + std::to_string(table->num_rows()) + " rows for " +
                        std::to_string(input->num_rows()) + "; it must give as many as it gets");
    return table;
  }

  void finish(std::size_t block, const TablePointer& table, bool keep) const {
    rows_.set(block, table->num_rows());
    const std::int64_t bytes = arrow::util::ReferencedBufferSize(*table).ValueOr(arrow::util::TotalBufferSize(*table));
    const std::lock_guard lock(mutex_);
    running_.erase(block);
    if (!keep || kept_bytes_ + bytes > kKeptBytes) return;
    kept_.emplace(block, table);
    kept_bytes_ += bytes;
  }

  const BlockFunction function_;
  const MapOptions options_;
  mutable std::atomic<bool> is_in_place_ = true;  ///< until read_numbers() was in vain
  mutable CountedBlocks rows_;
  mutable std::mutex finding_schema_;  ///< held while the function runs
  mutable std::mutex mutex_;
  mutable std::shared_ptr<arrow::Schema> schema_;
  mutable std::map<std::size_t, std::shared_future<TablePointer>> running_;
  mutable std::map<std::size_t, TablePointer> kept_;
  mutable std::int64_t kept_bytes_ = 0;
};

}  // namespace

SourcePointer map(SourcePointer from, BlockFunction function, MapOptions options) {
  return std::make_shared<MapSource>(std::move(from), std::move(function), std::move(options));
}

}  // namespace lockstep::data
