#include <arrow/array/array_primitive.h>
#include <arrow/array/util.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/expression.h>
#include <arrow/datum.h>
#include <arrow/record_batch.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/text.h"
#include "data/counted_blocks.h"
#include "data/schemas.h"
#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

namespace compute = arrow::compute;

/// A condition that fits the columns of a source.
struct Condition {
  compute::Expression bound{};
  std::vector<int> columns{};    ///< that it reads
  std::vector<bool> matching{};  ///< blocks that may have rows for which it holds; empty: all
};

Condition fitted(const compute::Expression& condition, const arrow::Schema& schema) {
  Condition made;
  for (const arrow::FieldRef& field : compute::FieldsInExpression(condition)) {
    const auto path = field.FindOneOrNone(schema);
    if (!path.ok() || path->empty()) {
      const std::string name = field.name() ? *field.name() : field.ToString();
      throw ConfigError("[data] filter() got a condition on " + in_quotes(name) + ", but the columns are " +
                        joined(closest_first(schema.field_names(), name), ", "));
    }
    const int column = path->indices().front();
    if (std::find(made.columns.begin(), made.columns.end(), column) == made.columns.end())
      made.columns.push_back(column);
  }
  auto bound = condition.Bind(schema);
  if (!bound.ok())
    throw ConfigError("[data] filter() got " + condition.ToString() +
                      ", which does not fit the columns: " + bound.status().message());
  made.bound = std::move(bound).ValueUnsafe();
  if (made.bound.type()->id() != arrow::Type::BOOL)
    throw ConfigError("[data] filter() got " + condition.ToString() + ", which is " + made.bound.type()->ToString() +
                      "; it must be true or false");
  return made;
}

class FilterSource final : public Step {
 public:
  FilterSource(SourcePointer from, const compute::Expression& condition) : Step(std::move(from)), given_(condition) {
    if (from_->knows_schema()) this->condition();
  }

  std::string description() const override {
    std::string text = "filter: " + given_.ToString();
    if (!from_->knows_schema() || condition().matching.empty()) return text;
    const auto& matching = condition().matching;
    const auto skipped = static_cast<std::size_t>(std::count(matching.begin(), matching.end(), false));
    return text + " (pushed down: " + std::to_string(skipped) + " of " + counted(matching.size(), "block") +
           " not read, by their statistics)";
  }
  std::string identity() const override { return from_->identity() + "\nfilter: " + given_.ToString(); }
  bool is_counted() const override { return rows_.is_complete(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    return rows_.all("filter", from_->blocks(), [this](std::size_t block) { return rows_of_block(block); });
  }
  void set_rows_of_blocks(const std::vector<std::int64_t>& rows) const override { rows_.set_all(rows); }
  std::int64_t rows_of_block(std::size_t block) const override {
    if (const auto known = rows_.rows(block)) return *known;
    const std::int64_t rows = count(block);
    rows_.set(block, rows);
    return rows;
  }
  std::vector<bool> may_match(const compute::Expression& filter) const override {
    auto matching = from_->may_match(filter);
    const auto& own = condition().matching;
    if (matching.empty()) return own;
    for (std::size_t block = 0; block < own.size(); ++block) matching[block] = matching[block] && own[block];
    return matching;
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    if (rows_.rows(block) == 0 || !may_have_rows(block)) {
      rows_.set(block, 0);
      return empty_table(*schema(), columns);
    }
    std::vector<int> wanted = columns;
    for (const int column : condition().columns)
      if (std::find(wanted.begin(), wanted.end(), column) == wanted.end()) wanted.push_back(column);
    const auto table = measured(*from_, block, wanted);
    const auto mask = mask_of(*table);
    std::vector<int> first(columns.size());
    for (std::size_t n = 0; n < first.size(); ++n) first[n] = static_cast<int>(n);
    auto selected = value_of(table->SelectColumns(first), "filter");
    auto filtered = mask ? value_of(compute::Filter(selected, mask), "filter").table() : selected;
    rows_.set(block, filtered->num_rows());
    return filtered;
  }

 private:
  const Condition& condition() const {
    const auto& schema = from_->schema();  // may read: not under the lock
    const std::lock_guard lock(mutex_);
    if (!condition_) {
      condition_ = fitted(given_, *schema);
      condition_->matching = from_->may_match(given_);
    }
    return *condition_;
  }
  bool may_have_rows(std::size_t block) const {
    const auto& matching = condition().matching;
    return matching.empty() || matching[block];
  }

  /// Whether the condition holds, for each row of a table that has its columns; null if it holds for all.
  std::shared_ptr<arrow::Array> mask_of(const arrow::Table& table) const {
    const auto batch = value_of(table.CombineChunksToBatch(), "filter");
    auto result = compute::ExecuteScalarExpression(condition().bound, *schema(), arrow::Datum(batch));
    const arrow::Datum mask = value_of(std::move(result), "filter: " + given_.ToString());
    if (!mask.is_scalar()) return mask.make_array();
    const auto& all = mask.scalar_as<arrow::BooleanScalar>();
    if (all.is_valid && all.value) return nullptr;
    return value_of(arrow::MakeArrayFromScalar(arrow::BooleanScalar(false), table.num_rows()), "filter");
  }

  std::int64_t count(std::size_t block) const {
    if (!may_have_rows(block)) return 0;
    if (condition().columns.empty()) return read(block, {})->num_rows();
    const auto mask = mask_of(*measured(*from_, block, condition().columns));
    return mask ? static_cast<const arrow::BooleanArray&>(*mask).true_count() : from_->rows_of_block(block);
  }

  const compute::Expression given_;
  mutable std::mutex mutex_;
  mutable std::optional<Condition> condition_;
  mutable CountedBlocks rows_;
};

}  // namespace

SourcePointer filter(SourcePointer from, const arrow::compute::Expression& condition) {
  return std::make_shared<FilterSource>(std::move(from), condition);
}

}  // namespace lockstep::data
