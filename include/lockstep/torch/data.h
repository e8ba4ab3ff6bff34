#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <lockstep/data.h>
#include <lockstep/error.h>
#include <lockstep/number_columns.h>
#include <lockstep/torch/batches.h>
#include <lockstep/torch/collectives.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Data sets as tensors. <lockstep/torch.h> does not include this header, as it needs Arrow: link Lockstep::torch and
/// Lockstep::data.
namespace lockstep::torch {

/// The tensors of a batch by column, in the order of the columns: `batch["x"]`. Rows are the first dimension.
/// Fixed-size lists and tensors have more dimensions.
using TensorBatch = ::torch::OrderedDict<std::string, ::torch::Tensor>;

struct TensorBatchOptions {
  std::int64_t batch_size = 256;                   ///< per worker
  std::vector<std::string> columns{};              ///< nothing: all
  std::optional<::torch::Dtype> dtype{};           ///< of all tensors; nothing: the types of the columns
  std::map<std::string, ::torch::Dtype> dtypes{};  ///< of single columns; they win over `dtype`
  bool drop_last = false;                          ///< drop a last batch that is not full
  bool move_to_device = true;                      ///< move tensors to device()
};

struct ExampleOptions {
  std::int64_t batch_size = 256;                  ///< per worker
  std::string label_column{};                     ///< of the target
  std::vector<std::string> feature_columns{};     ///< nothing: all others
  std::optional<::torch::Dtype> feature_dtype{};  ///< nothing: a type that holds all of these columns
  std::optional<::torch::Dtype> label_dtype{};    ///< nothing: the type of the column
  /// The target of a column of numbers has the shape [rows, 1], as outputs have; false: [rows], as labels of classes.
  bool unsqueeze_label_tensor = true;
  bool drop_last = false;      ///< drop a last batch that is not full
  bool move_to_device = true;  ///< move tensors to device()
};

namespace detail {

inline ::torch::Dtype dtype_named(const std::string& name) {
  static const std::map<std::string, ::torch::Dtype> types{
      {"bool", ::torch::kBool},     {"int8", ::torch::kInt8},       {"int16", ::torch::kInt16},
      {"int32", ::torch::kInt32},   {"int64", ::torch::kInt64},     {"uint8", ::torch::kUInt8},
      {"uint16", ::torch::kUInt16}, {"uint32", ::torch::kUInt32},   {"uint64", ::torch::kUInt64},
      {"float16", ::torch::kHalf},  {"float32", ::torch::kFloat32}, {"float64", ::torch::kFloat64}};
  return types.at(name);
}

/// Shares the column's memory unless another type is wanted.
inline ::torch::Tensor to_tensor(const NumberColumn& column, std::optional<::torch::Dtype> dtype) {
  const auto tensor = ::torch::from_blob(
      const_cast<void*>(column.data), column.shape, [owner = column.owner](void*) {}, dtype_named(column.dtype));
  return dtype ? tensor.to(*dtype) : tensor;
}

inline ::torch::Tensor placed(::torch::Tensor tensor, bool move_to_device) {
  return move_to_device ? moved(std::move(tensor), device()) : tensor;
}

/// Throws ConfigError if there are none.
inline std::vector<std::string> feature_names(const arrow::Schema& schema, const ExampleOptions& options) {
  std::vector<std::string> names = options.feature_columns.empty() ? schema.field_names() : options.feature_columns;
  if (options.feature_columns.empty()) std::erase(names, options.label_column);
  if (names.empty()) throw ConfigError("[data] there is no column beside the label \"" + options.label_column + "\"");
  return names;
}

/// Features side by side. `names` are theirs.
inline ::torch::Tensor side_by_side(std::vector<::torch::Tensor> parts, const std::vector<std::string>& names) {
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].dim() == 1) parts[part] = parts[part].unsqueeze(1);
    if (parts.size() > 1 && parts[part].dim() > 2)
      throw ConfigError("[data] the feature column \"" + names[part] + "\" has tensors of " +
                        std::to_string(parts[part].dim() - 1) +
                        " dimensions, which cannot stand beside other columns; use it alone, or tensor_batches()");
  }
  return parts.size() == 1 ? parts.front() : ::torch::cat(parts, 1);
}

}  // namespace detail

/// The tensors of one record batch. They share its memory if type and device stay the same, booleans excepted: change
/// such a tensor only if nobody else reads the batch. Throws ConfigError that names the column for strings, nulls and
/// whatever else is not a number, and for columns that are not there.
inline TensorBatch to_tensors(const arrow::RecordBatch& batch, const TensorBatchOptions& options = {}) {
  TensorBatch tensors("Column");
  for (const NumberColumn& column : number_columns(batch, options.columns)) {
    const auto own = options.dtypes.find(column.name);
    const auto dtype = own == options.dtypes.end() ? options.dtype : std::optional(own->second);
    tensors.insert(column.name, detail::placed(detail::to_tensor(column, dtype), options.move_to_device));
  }
  return tensors;
}

/// Features and target of one record batch: `data` holds the feature columns side by side, as [rows, width]; a single
/// column of tensors keeps its shape. Throws as to_tensors() does.
inline ::torch::data::Example<> to_example(const arrow::RecordBatch& batch, const ExampleOptions& options) {
  std::vector<::torch::Tensor> features;
  const auto names = detail::feature_names(*batch.schema(), options);
  for (const NumberColumn& column : number_columns(batch, names))
    features.push_back(detail::to_tensor(column, options.feature_dtype));
  auto target = detail::to_tensor(number_columns(batch, {options.label_column}).front(), options.label_dtype);
  if (options.unsqueeze_label_tensor && target.dim() == 1) target = target.unsqueeze(1);
  return {detail::placed(detail::side_by_side(std::move(features), names), options.move_to_device),
          detail::placed(std::move(target), options.move_to_device)};
}

/// One epoch of a shard, or the rest of one; a range that is gone through once. Threads read ahead while it lives. The
/// shard's position moves as with DatasetShard::batches(). Nobody else has the memory of a batch: it may be changed.
template <class Batch>
class ShardBatches {
  struct State {
    bool advance() {
      batch.reset();
      if (at)
        ++*at;
      else
        at.emplace(loop.begin());
      if (*at == std::default_sentinel) return false;
      batch.emplace(convert(***at));
      return true;
    }

    DatasetShard::Loop loop;
    std::function<Batch(const arrow::RecordBatch&)> convert;
    std::optional<DatasetShard::Loop::Iterator> at{};
    std::optional<Batch> batch{};
  };

 public:
  using Iterator = detail::BatchIterator<State, Batch>;

  ShardBatches(DatasetShard::Loop loop, std::function<Batch(const arrow::RecordBatch&)> convert)
      : state_(new State{std::move(loop), std::move(convert)}) {}
  Iterator begin() const { return Iterator(state_->advance() ? state_.get() : nullptr); }
  Iterator end() const { return Iterator(nullptr); }

 private:
  std::unique_ptr<State> state_;
};

/// This rank's batches of a data set as tensors by column.
///
///     auto shard = session.dataset_shard("train");
///     for (int epoch = 0; epoch < 10; ++epoch)
///       for (auto& batch : lockstep::torch::tensor_batches(shard, {.columns = {"x", "y"}, .dtype = torch::kFloat}))
///         train_step(batch["x"], batch["y"]);
///
/// All columns of the plan are read: DatasetPlan::select_columns() reads less. Throws ConfigError at once for columns
/// that are not there or are no numbers, and for a batch size below 1; the loop throws it for nulls.
inline ShardBatches<TensorBatch> tensor_batches(DatasetShard shard, TensorBatchOptions options = {}) {
  options.columns = number_column_names(*shard.schema(), options.columns);
  for (const auto& [name, dtype] : options.dtypes) number_column_names(*shard.schema(), {name});
  auto loop = shard.batches(options.batch_size, options.drop_last);
  return {std::move(loop), [options = std::move(options)](const auto& batch) { return to_tensors(batch, options); }};
}

/// The same as pairs of features and target:
///
///     for (auto& [data, target] : lockstep::torch::example_batches(
///              shard, {.label_column = "y", .feature_dtype = torch::kFloat, .label_dtype = torch::kFloat}))
///       torch::mse_loss(model->forward(data), target).backward();
inline ShardBatches<::torch::data::Example<>> example_batches(DatasetShard shard, ExampleOptions options) {
  options.feature_columns = number_column_names(*shard.schema(), detail::feature_names(*shard.schema(), options));
  number_column_names(*shard.schema(), {options.label_column});
  auto loop = shard.batches(options.batch_size, options.drop_last);
  return {std::move(loop), [options = std::move(options)](const auto& batch) { return to_example(batch, options); }};
}

}  // namespace lockstep::torch
