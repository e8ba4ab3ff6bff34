#include "data/schemas.h"

#include <arrow/array/util.h>
#include <arrow/chunked_array.h>
#include <arrow/compute/cast.h>
#include <arrow/datum.h>
#include <arrow/type.h>

#include <algorithm>

#include "data/status.h"

namespace lockstep::data {
namespace {

std::string column_text(const arrow::Schema& schema, int column) {
  if (column >= schema.num_fields()) return "no such column";
  return schema.field(column)->name() + ": " + schema.field(column)->type()->ToString();
}

/// `type`, where parts without a type have those of `more`.
std::shared_ptr<arrow::DataType> without_nulls(const std::shared_ptr<arrow::DataType>& type,
                                               const std::shared_ptr<arrow::DataType>& more) {
  if (type->id() == arrow::Type::NA) return more;
  if (type->id() != more->id()) return type;
  if (type->id() == arrow::Type::LIST)
    return arrow::list(type->field(0)->WithType(without_nulls(type->field(0)->type(), more->field(0)->type())));
  if (type->id() != arrow::Type::STRUCT) return type;
  const auto& known = static_cast<const arrow::StructType&>(*type);
  const auto& others = static_cast<const arrow::StructType&>(*more);
  auto fields = known.fields();
  for (auto& field : fields)
    if (const auto other = others.GetFieldByName(field->name()))
      field = field->WithType(without_nulls(field->type(), other->type()));
  return arrow::struct_(fields);
}

}  // namespace

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void check_same_schema(const arrow::Schema& expected, const std::string& expected_file, const arrow::Schema& schema,
                       const std::string& file) {
  for (int column = 0; column < std::max(expected.num_fields(), schema.num_fields()); ++column) {
    const bool same = column < expected.num_fields() && column < schema.num_fields() &&
                      expected.field(column)->name() == schema.field(column)->name() &&
                      expected.field(column)->type()->Equals(*schema.field(column)->type());
    if (!same)
      fail(file, "column " + std::to_string(column) + " is " + column_text(schema, column) + ", but in " +
                     expected_file + " it is " + column_text(expected, column) +
                     "; all files of a data set must have the same columns, or give unify_schemas=True");
  }
}

std::shared_ptr<arrow::Schema> merged(const arrow::Schema& known, const std::string& known_file,
                                      const arrow::Schema& schema, const std::string& file) {
  auto fields = known.fields();
  for (const auto& field : schema.fields()) {
    const int at = known.GetFieldIndex(field->name());
    if (at < 0) {
      fields.push_back(field);
      continue;
    }
    auto& there = fields[static_cast<std::size_t>(at)];
    auto both = there->MergeWith(*field, arrow::Field::MergeOptions::Permissive());
    if (!both.ok())
      fail(file, "the column " + field->name() + " is " + field->type()->ToString() + ", but in " + known_file +
                     " it is " + there->type()->ToString() + ", and no type holds both");
    there = *both;
  }
  return arrow::schema(std::move(fields));
}

std::shared_ptr<arrow::Schema> with_types_for_nulls(const arrow::Schema& schema, const arrow::Schema& more) {
  auto fields = schema.fields();
  for (auto& field : fields)
    if (const auto other = more.GetFieldByName(field->name()))
      field = field->WithType(without_nulls(field->type(), other->type()));
  return arrow::schema(std::move(fields));
}

std::shared_ptr<arrow::ChunkedArray> converted(const std::shared_ptr<arrow::ChunkedArray>& array,
                                               const std::shared_ptr<arrow::DataType>& type, const std::string& where) {
  if (array->type()->Equals(*type)) return array;
  return value_of(arrow::compute::Cast(array, type), where).chunked_array();
}

std::shared_ptr<arrow::ChunkedArray> nulls(const std::shared_ptr<arrow::DataType>& type, std::int64_t rows) {
  return std::make_shared<arrow::ChunkedArray>(value_of(arrow::MakeArrayOfNull(type, rows), "nulls"));
}

}  // namespace lockstep::data
