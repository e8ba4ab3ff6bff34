#include "data/parquet_statistics.h"

#include <arrow/compute/expression.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <optional>

namespace lockstep::data {
namespace {

using arrow::compute::Expression;

/// Whether a condition may hold where a comparison does not, as for NaN, which statistics leave out.
bool negates(const Expression& condition) {
  const auto* call = condition.call();
  if (!call) return false;
  return call->function_name == "invert" || call->function_name == "not_equal" ||
         std::any_of(call->arguments.begin(), call->arguments.end(), &negates);
}

std::optional<Expression> known_about(const parquet::RowGroupMetaData& group, int leaf, const arrow::Field& field) {
  const auto statistics = group.ColumnChunk(leaf)->statistics();
  if (!statistics || !statistics->HasMinMax()) return std::nullopt;
  std::shared_ptr<arrow::Scalar> least, most;
  if (!parquet::arrow::StatisticsAsScalars(*statistics, &least, &most).ok()) return std::nullopt;
  const auto low = least->CastTo(field.type()), high = most->CastTo(field.type());
  if (!low.ok() || !high.ok()) return std::nullopt;
  const auto column = arrow::compute::field_ref(field.name());
  const auto range = arrow::compute::and_(arrow::compute::greater_equal(column, arrow::compute::literal(*low)),
                                          arrow::compute::less_equal(column, arrow::compute::literal(*high)));
  if (statistics->HasNullCount() && statistics->null_count() == 0) return range;
  return arrow::compute::or_(range, arrow::compute::is_null(column));
}

}  // namespace

bool row_group_may_match(const parquet::FileMetaData& footer, int row_group, const arrow::Schema& schema,
                         const Expression& condition) {
  try {
    const auto group = footer.RowGroup(row_group);
    Expression rest = condition;
    for (const arrow::FieldRef& ref : arrow::compute::FieldsInExpression(condition)) {
      const auto field = ref.name() ? schema.GetFieldByName(*ref.name()) : nullptr;
      if (!field || field->type()->id() == arrow::Type::DICTIONARY) continue;
      if (arrow::is_floating(field->type()->id()) && negates(condition)) continue;
      const int leaf = footer.schema()->ColumnIndex(field->name());
      if (leaf < 0 || !footer.schema()->GetColumnRoot(leaf)->is_primitive()) continue;
      const auto known = known_about(*group, leaf, *field);
      if (!known) continue;
      auto simpler = arrow::compute::SimplifyWithGuarantee(rest, *known);
      if (simpler.ok()) rest = std::move(simpler).ValueUnsafe();
    }
    return rest.IsSatisfiable();
  } catch (const parquet::ParquetException&) {
    return true;  // reading the row group tells
  }
}

}  // namespace lockstep::data
