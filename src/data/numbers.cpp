#include "data/numbers.h"

#include <arrow/array/data.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>

#include <vector>

namespace lockstep::data {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t width_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
      return static_cast<std::size_t>(type.byte_width());
    default:
      return 0;
  }
}

}  // namespace

std::size_t aligned_bytes(const arrow::DataType& type, std::int64_t rows) {
  const std::size_t size = width_of(type) * static_cast<std::size_t>(rows);
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t aligned_bytes(const arrow::Schema& schema, std::int64_t rows) {
  std::size_t sum = 0;
  for (const auto& field : schema.fields()) {
    if (width_of(*field->type()) == 0) return 0;
    sum += aligned_bytes(*field->type(), rows);
  }
  return sum;
}

std::shared_ptr<arrow::Table> table_of_numbers(const std::shared_ptr<arrow::Schema>& schema, std::int64_t rows,
                                               const std::shared_ptr<arrow::Buffer>& memory) {
  std::vector<std::shared_ptr<arrow::Array>> columns;
  std::int64_t at = 0;
  for (const auto& field : schema->fields()) {
    const auto size = static_cast<std::int64_t>(aligned_bytes(*field->type(), rows));
    columns.push_back(arrow::MakeArray(
        arrow::ArrayData::Make(field->type(), rows, {nullptr, arrow::SliceBuffer(memory, at, size)}, 0)));
    at += size;
  }
  return arrow::Table::Make(schema, columns, rows);
}

}  // namespace lockstep::data
