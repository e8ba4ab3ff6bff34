#include <lockstep/number_columns.h>

#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/extension_type.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <lockstep/error.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kAdvice = "leave it out with .columns or select_columns()";

/// An empty text if there is none.
std::string dtype_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
      return "bool";
    case arrow::Type::HALF_FLOAT:
      return "float16";
    case arrow::Type::FLOAT:
      return "float32";
    case arrow::Type::DOUBLE:
      return "float64";
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
      return type.name();
    default:
      return "";
  }
}

/// The type of the numbers, and the shape of a row.
struct Layout {
  std::string dtype;
  std::vector<std::int64_t> row;
};

/// Only the shape of a tensor, or that of the lists: a tensor's storage is one list.
Layout layout_of(const arrow::DataType& type) {
  if (type.id() == arrow::Type::FIXED_SIZE_LIST) {
    const auto& list = static_cast<const arrow::FixedSizeListType&>(type);
    Layout layout = layout_of(*list.value_type());
    layout.row.insert(layout.row.begin(), list.list_size());
    return layout;
  }
  if (const auto* tensor = dynamic_cast<const arrow::extension::FixedShapeTensorType*>(&type))
    if (std::is_sorted(tensor->permutation().begin(), tensor->permutation().end()))  // else it is not in C order
      return {dtype_of(*tensor->value_type()), tensor->shape()};
  return {dtype_of(type), {}};
}

Layout layout_of(const arrow::Field& field) {
  Layout layout = layout_of(*field.type());
  if (layout.dtype.empty())
    throw ConfigError("[data] the column " + in_quotes(field.name()) + " is " + field.type()->ToString() +
                      ", of which there are no tensors; " + kAdvice);
  return layout;
}

int index_of(const arrow::Schema& schema, const std::string& name) {
  const int index = schema.GetFieldIndex(name);
  if (index < 0)
    throw ConfigError("[data] there is no column " + in_quotes(name) + "; the columns are " +
                      joined(closest_first(schema.field_names(), name), ", "));
  return index;
}

/// The numbers of lists and tensors, one after the other.
std::shared_ptr<arrow::Array> flat(std::shared_ptr<arrow::Array> array, const std::string& name) {
  for (;;) {
    if (const std::int64_t nulls = array->null_count(); nulls > 0)
      throw ConfigError("[data] a batch of the column " + in_quotes(name) + " has " + std::to_string(nulls) +
                        (nulls == 1 ? " null" : " nulls") +
                        ", which tensors cannot hold; fill them in in the files, or " + kAdvice);
    if (array->type_id() == arrow::Type::EXTENSION) {
      array = static_cast<const arrow::ExtensionArray&>(*array).storage();
    } else if (array->type_id() == arrow::Type::FIXED_SIZE_LIST) {
      const auto& list = static_cast<const arrow::FixedSizeListArray&>(*array);
      const std::int64_t size = list.list_type()->list_size();
      array = list.values()->Slice(list.value_offset(0), list.length() * size);
    } else {
      return array;
    }
  }
}

NumberColumn column_of(const arrow::Field& field, const std::shared_ptr<arrow::Array>& array) {
  Layout layout = layout_of(field);
  NumberColumn column{.name = field.name(), .dtype = std::move(layout.dtype), .shape = std::move(layout.row)};
  column.shape.insert(column.shape.begin(), array->length());
  const std::shared_ptr<arrow::Array> values = flat(array, column.name);
  if (values->type_id() == arrow::Type::BOOL) {
    const auto& bits = static_cast<const arrow::BooleanArray&>(*values);
    const auto bytes = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(bits.length()));
    for (std::int64_t at = 0; at < bits.length(); ++at) (*bytes)[static_cast<std::size_t>(at)] = bits.Value(at) ? 1 : 0;
    column.data = bytes->data();
    column.owner = bytes;
  } else {
    const int width = static_cast<const arrow::FixedWidthType&>(*values->type()).bit_width() / 8;
    const auto* bytes = values->data()->GetValues<std::uint8_t>(1, 0);
    column.data = bytes == nullptr ? nullptr : bytes + values->offset() * width;  // null: no rows
    column.owner = values;
  }
  return column;
}

}  // namespace

std::vector<std::string> number_column_names(const arrow::Schema& schema, const std::vector<std::string>& wanted) {
  std::vector<std::string> names = wanted.empty() ? schema.field_names() : wanted;
  for (const std::string& name : names) layout_of(*schema.field(index_of(schema, name)));
  return names;
}

std::vector<NumberColumn> number_columns(const arrow::RecordBatch& batch, const std::vector<std::string>& wanted) {
  std::vector<NumberColumn> columns;
  for (const std::string& name : wanted.empty() ? batch.schema()->field_names() : wanted) {
    const int index = index_of(*batch.schema(), name);
    columns.push_back(column_of(*batch.schema()->field(index), batch.column(index)));
  }
  return columns;
}

}  // namespace lockstep
