#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace arrow {
class RecordBatch;
class Schema;
}  // namespace arrow

/// Columns of numbers as plain memory, from which any tensor library makes its tensors; <lockstep/torch/data.h> does so
/// for LibTorch. It needs Arrow: link Lockstep::data. Any thread may call these functions.
namespace lockstep {

/// The numbers of one column. They are Arrow's own memory, not a copy; only booleans, which Arrow packs as bits, are
/// copied to a byte each. Do not change them if others read the batch.
struct NumberColumn {
  std::string name;
  /// numpy's name: bool, int8 to int64, uint8 to uint64, float16, float32 or float64.
  std::string dtype;
  /// The rows, then the dimensions of a row: of fixed-size lists, also nested ones, and of tensors of a fixed shape.
  std::vector<std::int64_t> shape;
  const void* data = nullptr;           ///< in C order
  std::shared_ptr<const void> owner{};  ///< keeps `data` alive
};

/// `wanted`, or all columns if it is empty. Throws ConfigError that names the column if there is no such column, or if
/// it holds anything but numbers and booleans, fixed-size lists of them, and tensors of a fixed shape.
std::vector<std::string> number_column_names(const arrow::Schema& schema, const std::vector<std::string>& wanted = {});

/// These columns of a batch, in this order. Throws as number_column_names() does, and ConfigError that names the column
/// if it has a null.
std::vector<NumberColumn> number_columns(const arrow::RecordBatch& batch, const std::vector<std::string>& wanted = {});

}  // namespace lockstep
