#include <arrow/array/array_primitive.h>
#include <arrow/buffer.h>
#include <arrow/compute/api_vector.h>
#include <arrow/datum.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <lockstep/permutation.h>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "data/all_blocks.h"
#include "data/shared_table.h"
#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

class WholeSource final : public Step {
 public:
  WholeSource(SourcePointer from, TableFunction function, WholeOptions options)
      : Step(std::move(from)), function_(std::move(function)), options_(std::move(options)) {}

  std::string description() const override { return options_.description; }
  bool is_borrowed() const override { return true; }
  bool knows_schema() const override { return options_.keeps_schema ? from_->knows_schema() : is_made(); }
  const std::shared_ptr<arrow::Schema>& schema() const override {
    return options_.keeps_schema ? from_->schema() : made().schema();
  }
  bool is_counted() const override {
    if (options_.keeps_rows && from_->is_counted()) return true;
    const std::lock_guard lock(mutex_);
    return counted_ || table_ != nullptr;
  }
  std::size_t blocks() const override { return options_.blocks > 0 ? options_.blocks : rows_of_blocks().size(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    std::int64_t total = 0;
    {
      const std::lock_guard lock(mutex_);
      if (counted_) return rows_;
    }
    if (options_.keeps_blocks) {
      prepare();
      return rows_;
    }
    if (options_.keeps_rows && !is_made()) {
      const auto& rows = from_->rows_of_blocks();
      total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    } else {
      total = made().num_rows();
    }
    const std::lock_guard lock(mutex_);
    if (!counted_) rows_ = even_blocks(total, options_.blocks);
    counted_ = true;
    return rows_;
  }
  std::int64_t rows_of_block(std::size_t block) const override { return rows_of_blocks()[block]; }
  void set_rows_of_blocks(const std::vector<std::int64_t>& rows) const override {
    const std::lock_guard lock(mutex_);
    if (counted_) return;
    rows_ = rows;
    counted_ = true;
  }
  void prepare() const override { made(); }
  std::vector<bool> may_match(const arrow::compute::Expression& /*filter*/) const override { return {}; }

  /// Before any thread reads.
  void share(SharedTable shared) const {
    if (!options_.keeps_blocks) shared_ = std::move(shared);
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const auto& rows = rows_of_blocks();
    const auto begin =
        std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
    return value_of(made().SelectColumns(columns), options_.description)->Slice(begin, rows[block]);
  }

 private:
  bool is_made() const {
    const std::lock_guard lock(mutex_);
    return table_ != nullptr;
  }

  const arrow::Table& made() const {
    const std::lock_guard making(making_);
    if (!is_made()) {
      std::vector<std::int64_t> rows;
      auto table = shared_ ? shared_->get(options_.description, [this] { return computed(nullptr); }) : computed(&rows);
      const std::lock_guard lock(mutex_);
      if (options_.keeps_blocks) {
        rows_ = std::move(rows);
        counted_ = true;
      }
      const auto counted = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
      if (counted_ && counted != table->num_rows())
        throw ConfigError("[data] " + options_.description + " gave " + std::to_string(table->num_rows()) +
                          " rows, but before " + std::to_string(counted) + "; it must always give the same ones");
      table_ = std::move(table);
    }
    return *table_;  // does not change any more
  }

  std::shared_ptr<arrow::Table> computed(std::vector<std::int64_t>* rows) const {
    auto table = read_all(*from_, options_.description, rows);
    const Timed timed(meter());
    table = function_(table);
    if (options_.keeps_schema) table = arrow::Table::Make(from_->schema(), table->columns(), table->num_rows());
    return table->ReplaceSchemaMetadata(nullptr);
  }

  const TableFunction function_;
  const WholeOptions options_;
  mutable std::optional<SharedTable> shared_;  ///< with the other ranks of the node
  mutable std::mutex making_;                  ///< held while the function runs
  mutable std::mutex mutex_;
  mutable std::shared_ptr<arrow::Table> table_;
  mutable std::vector<std::int64_t> rows_;
  mutable bool counted_ = false;
};

}  // namespace

SourcePointer whole(SourcePointer from, TableFunction function, WholeOptions options) {
  return std::make_shared<WholeSource>(std::move(from), std::move(function), std::move(options));
}

void share_whole(const std::vector<SourcePointer>& sources, const MakeCache& make_cache) {
  std::vector<const WholeSource*> found;
  std::set<const Source*> seen;
  const std::function<void(const Source&)> visit = [&](const Source& source) {
    if (!seen.insert(&source).second) return;
    for (const Source* input : source.inputs()) visit(*input);
    if (const auto* step = dynamic_cast<const WholeSource*>(&source)) found.push_back(step);
  };
  for (const SourcePointer& source : sources) visit(*source);
  if (found.empty()) return;
  const auto cache = make_cache();
  if (!cache) return;
  for (std::size_t number = 0; number < found.size(); ++number) found[number]->share({cache, number});
}

SourcePointer shuffle_rows(SourcePointer from, std::uint64_t seed, std::size_t blocks) {
  const auto shuffled = [seed](const std::shared_ptr<arrow::Table>& table) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(table->num_rows()));
    const detail::Permutation permutation(rows.size(), detail::mixed(seed, 0));
    for (std::size_t n = 0; n < rows.size(); ++n) rows[n] = static_cast<std::int64_t>(permutation(n));
    const auto indices = std::make_shared<arrow::Int64Array>(table->num_rows(), arrow::Buffer::Wrap(rows));
    return value_of(arrow::compute::Take(table, indices, arrow::compute::TakeOptions::NoBoundsCheck()),
                    "random_shuffle")
        .table();
  };
  return whole(std::move(from), shuffled,
               {.description = "random_shuffle: seed " + std::to_string(seed) + " (in memory)",
                .keeps_rows = true,
                .keeps_schema = true,
                .blocks = blocks});
}

std::shared_ptr<arrow::Table> read_all(const Source& source, const std::string& step, std::vector<std::int64_t>* rows) {
  source.prepare();
  const auto& schema = source.schema();
  const auto columns = all_columns(*schema);
  std::vector<std::shared_ptr<arrow::Table>> tables;
  for_all_blocks(
      step, source.blocks(), [&](std::size_t block) { return measured(source, block, columns); },
      [&](const std::shared_ptr<arrow::Table>& table) {
        // Files may differ in what they say about nulls; here all blocks have one schema.
        if (rows) rows->push_back(table->num_rows());
        if (table->num_rows() > 0) tables.push_back(arrow::Table::Make(schema, table->columns(), table->num_rows()));
      });
  if (tables.empty()) return empty_table(*schema, columns);
  return value_of(arrow::ConcatenateTables(tables), step);
}

std::vector<std::int64_t> even_blocks(std::int64_t total, std::size_t blocks) {
  if (blocks > 0) {
    std::vector<std::int64_t> rows(blocks, total / static_cast<std::int64_t>(blocks));
    for (std::int64_t n = 0; n < total % static_cast<std::int64_t>(blocks); ++n) ++rows[static_cast<std::size_t>(n)];
    return rows;
  }
  std::vector<std::int64_t> rows(static_cast<std::size_t>(total / kRowsOfBlock), kRowsOfBlock);
  if (total % kRowsOfBlock > 0) rows.push_back(total % kRowsOfBlock);
  return rows;
}

std::vector<int> all_columns(const arrow::Schema& schema) {
  std::vector<int> columns(static_cast<std::size_t>(schema.num_fields()));
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

std::shared_ptr<arrow::Table> empty_table(const arrow::Schema& schema, const std::vector<int>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (const int column : columns) fields.push_back(schema.field(column));
  return value_of(arrow::Table::MakeEmpty(arrow::schema(std::move(fields))), "an empty block");
}

}  // namespace lockstep::data
