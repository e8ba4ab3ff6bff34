#include <arrow/compute/cast.h>
#include <arrow/datum.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>

#include "base/text.h"
#include "data/schemas.h"
#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

/// The lines of all plans, those after the first one indented below a line of their own.
std::vector<std::string> plan_of_all(const std::vector<SourcePointer>& sources, const std::string& last) {
  std::vector<std::string> lines = sources.front()->plan();
  for (std::size_t n = 1; n < sources.size(); ++n) {
    const auto plan = sources[n]->plan();
    for (std::size_t line = 0; line < plan.size(); ++line)
      lines.push_back((line == 0 ? "with " : "     ") + plan[line]);
  }
  lines.push_back(last);
  return lines;
}

std::vector<std::string> files_of_all(const std::vector<SourcePointer>& sources) {
  std::vector<std::string> all;
  for (const auto& each : sources)
    for (auto& path : each->files())
      if (std::find(all.begin(), all.end(), path) == all.end()) all.push_back(std::move(path));
  return all;
}

std::int64_t size_of_all(const std::vector<SourcePointer>& sources) {
  std::int64_t sum = 0;
  for (const auto& each : sources) sum += each->size_bytes();
  return sum;
}

Skipped skipped_of_all(const std::vector<SourcePointer>& sources) {
  Skipped all;
  for (const auto& each : sources) {
    auto more = each->skipped();
    all.count += more.count;
    all.places.insert(all.places.end(), more.places.begin(), more.places.end());
  }
  return all;
}

class UnionSource final : public Source {
 public:
  explicit UnionSource(std::vector<SourcePointer> sources) : sources_(std::move(sources)) {
    if (knows_schema()) schema();
  }

  std::string description() const override { return "union: " + counted(sources_.size(), "data set"); }
  std::string identity() const override {
    std::string text = "union";
    for (const auto& each : sources_) text += "\n{" + each->identity() + "}";
    return text;
  }
  std::vector<std::string> plan() const override { return plan_of_all(sources_, description()); }
  std::vector<std::string> files() const override { return files_of_all(sources_); }
  std::int64_t size_bytes() const override { return size_of_all(sources_); }
  Skipped skipped() const override { return skipped_of_all(sources_); }
  const std::shared_ptr<arrow::Schema>& schema() const override {
    std::vector<std::shared_ptr<arrow::Schema>> schemas;
    for (const auto& each : sources_) schemas.push_back(each->schema());
    const std::lock_guard lock(mutex_);
    if (!schema_) schema_ = unified(schemas);
    return schema_;
  }
  bool knows_schema() const override { return every(&Source::knows_schema); }
  bool is_counted() const override { return every(&Source::is_counted); }
  bool is_borrowed() const override {
    return std::any_of(sources_.begin(), sources_.end(), [](const auto& each) { return each->is_borrowed(); });
  }
  std::size_t blocks() const override {
    return std::accumulate(sources_.begin(), sources_.end(), std::size_t{0},
                           [](std::size_t sum, const auto& each) { return sum + each->blocks(); });
  }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    {
      const std::lock_guard lock(mutex_);
      if (!rows_.empty()) return rows_;
    }
    std::vector<std::int64_t> rows;
    for (const auto& each : sources_)
      rows.insert(rows.end(), each->rows_of_blocks().begin(), each->rows_of_blocks().end());
    const std::lock_guard lock(mutex_);
    if (rows_.empty()) rows_ = std::move(rows);
    return rows_;
  }
  std::int64_t rows_of_block(std::size_t block) const override {
    const auto [source, number] = place(block);
    return source->rows_of_block(number);
  }
  void prepare() const override {
    for (const auto& each : sources_) each->prepare();
  }
  std::vector<const Source*> inputs() const override {
    std::vector<const Source*> all;
    for (const auto& each : sources_) all.push_back(each.get());
    return all;
  }
  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    std::vector<bool> matching;
    for (const auto& each : sources_) {
      auto more = each->schema()->Equals(*schema()) ? each->may_match(filter) : std::vector<bool>();
      if (more.empty()) more.assign(each->blocks(), true);
      matching.insert(matching.end(), more.begin(), more.end());
    }
    return matching;
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const auto [source, number] = place(block);
    std::vector<int> wanted;
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns) {
      fields.push_back(schema()->field(column));
      wanted.push_back(source->schema()->GetFieldIndex(fields.back()->name()));
    }
    const auto table = measured(*source, number, wanted);
    std::vector<std::shared_ptr<arrow::ChunkedArray>> arrays;
    for (std::size_t n = 0; n < fields.size(); ++n) {
      const auto& array = table->column(static_cast<int>(n));
      if (array->type()->Equals(*fields[n]->type()))
        arrays.push_back(array);
      else
        arrays.push_back(value_of(arrow::compute::Cast(array, fields[n]->type()), "union, column " + fields[n]->name())
                             .chunked_array());
    }
    return arrow::Table::Make(arrow::schema(std::move(fields)), std::move(arrays), table->num_rows());
  }

 private:
  bool every(bool (Source::*is)() const) const {
    return std::all_of(sources_.begin(), sources_.end(), [is](const auto& each) { return ((*each).*is)(); });
  }
  std::pair<const Source*, std::size_t> place(std::size_t block) const {
    for (const auto& each : sources_) {
      if (block < each->blocks()) return {each.get(), block};
      block -= each->blocks();
    }
    throw InternalError("[data] a union has no block " + std::to_string(block));
  }
  static std::shared_ptr<arrow::Schema> unified(const std::vector<std::shared_ptr<arrow::Schema>>& schemas) {
    const auto names_of = [](const arrow::Schema& schema) {
      auto names = schema.field_names();
      std::sort(names.begin(), names.end());
      return names;
    };
    for (std::size_t n = 1; n < schemas.size(); ++n)
      if (names_of(*schemas[n]) != names_of(*schemas.front()))
        throw ConfigError("[data] union() got data sets with other columns: the first has " +
                          joined(schemas.front()->field_names(), ", ") + ", number " + std::to_string(n + 1) + " has " +
                          joined(schemas[n]->field_names(), ", "));
    auto result = arrow::UnifySchemas(schemas, arrow::Field::MergeOptions::Permissive());
    if (!result.ok())
      throw ConfigError("[data] union() got data sets whose columns have other types: " + result.status().message());
    return std::move(result).ValueUnsafe();
  }

  const std::vector<SourcePointer> sources_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<arrow::Schema> schema_;
  mutable std::vector<std::int64_t> rows_;
};

class ZipSource final : public Source {
 public:
  ZipSource(SourcePointer left, SourcePointer right) : left_(std::move(left)), right_(std::move(right)) {
    if (is_counted()) check_rows();
  }

  std::string description() const override { return "zip: 2 data sets"; }
  std::string identity() const override { return "zip\n{" + left_->identity() + "}\n{" + right_->identity() + "}"; }
  std::vector<std::string> plan() const override { return plan_of_all({left_, right_}, description()); }
  std::vector<std::string> files() const override { return files_of_all({left_, right_}); }
  std::int64_t size_bytes() const override { return size_of_all({left_, right_}); }
  Skipped skipped() const override { return skipped_of_all({left_, right_}); }
  const std::shared_ptr<arrow::Schema>& schema() const override {
    auto fields = left_->schema()->fields();
    const auto& more = right_->schema()->fields();
    const std::lock_guard lock(mutex_);
    if (!schema_) {
      std::set<std::string> names;
      for (const auto& field : fields) names.insert(field->name());
      for (const auto& field : more) {
        std::string name = field->name();
        for (int n = 1; names.contains(name); ++n) name = field->name() + "_" + std::to_string(n);
        names.insert(name);
        fields.push_back(field->WithName(name));
      }
      schema_ = arrow::schema(std::move(fields));
    }
    return schema_;
  }
  bool knows_schema() const override { return left_->knows_schema() && right_->knows_schema(); }
  bool is_counted() const override { return left_->is_counted() && right_->is_counted(); }
  bool is_borrowed() const override { return left_->is_borrowed() || right_->is_borrowed(); }
  std::size_t blocks() const override { return left_->blocks(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    check_rows();
    return left_->rows_of_blocks();
  }
  std::vector<const Source*> inputs() const override { return {left_.get(), right_.get()}; }
  void prepare() const override {
    left_->prepare();
    right_->prepare();
    check_rows();
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    check_rows();
    const int split = left_->schema()->num_fields();
    std::vector<int> of_left, of_right;
    for (const int column : columns) column < split ? of_left.push_back(column) : of_right.push_back(column - split);
    const auto& rows = left_->rows_of_blocks();
    const auto begin =
        std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(block), std::int64_t{0});
    std::shared_ptr<arrow::Table> left, right;
    if (!of_left.empty()) left = measured(*left_, block, of_left);
    if (!of_right.empty()) right = rows_of_right(begin, begin + rows[block], of_right);
    int next_left = 0, next_right = 0;
    std::vector<std::shared_ptr<arrow::ChunkedArray>> arrays;
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns) {
      arrays.push_back(column < split ? left->column(next_left++) : right->column(next_right++));
      fields.push_back(schema()->field(column));
    }
    return arrow::Table::Make(arrow::schema(std::move(fields)), std::move(arrays), rows[block]);
  }

 private:
  void check_rows() const {
    if (is_checked_) return;
    const auto total = [](const auto& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); };
    const auto left = total(left_->rows_of_blocks()), right = total(right_->rows_of_blocks());
    if (left != right)
      throw ConfigError("[data] zip() got data sets of " + std::to_string(left) + " and " + std::to_string(right) +
                        " rows; they must have equally many");
    is_checked_ = true;
  }
  std::shared_ptr<arrow::Table> rows_of_right(std::int64_t begin, std::int64_t end,
                                              const std::vector<int>& columns) const {
    std::vector<std::shared_ptr<arrow::Table>> parts;
    std::int64_t at = 0;
    const auto& rows = right_->rows_of_blocks();
    for (std::size_t block = 0; block < rows.size() && at < end; at += rows[block++]) {
      if (at + rows[block] <= begin) continue;
      const std::int64_t first = std::max(begin - at, std::int64_t{0});
      parts.push_back(measured(*right_, block, columns)->Slice(first, std::min(rows[block], end - at) - first));
    }
    if (parts.empty()) return empty_table(*right_->schema(), columns);
    return parts.size() == 1 ? parts.front() : value_of(arrow::ConcatenateTables(parts), "zip");
  }

  const SourcePointer left_;
  const SourcePointer right_;
  mutable std::atomic<bool> is_checked_ = false;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<arrow::Schema> schema_;
};

}  // namespace

SourcePointer concatenate(std::vector<SourcePointer> sources) {
  return std::make_shared<UnionSource>(std::move(sources));
}

SourcePointer zip(SourcePointer left, SourcePointer right) {
  return std::make_shared<ZipSource>(std::move(left), std::move(right));
}

}  // namespace lockstep::data
