#pragma once

#include <torch/torch.h>

#include <lockstep/value.h>

namespace lockstep::torch {

/// The tensor as a metric: its number if it has one element, else an Array (array.h). Tensors of any device, with or
/// without a gradient; elements of types that Array lacks, such as bfloat16, become float32. Throws ConfigError that
/// says what to report instead for complex, sparse, quantized and meta tensors, and for one that is not defined.
Value to_value(const ::torch::Tensor& tensor);

}  // namespace lockstep::torch

/// Tensors may stand in metrics: `session.report({{"loss", loss}, {"confusion", counts}})`.
template <>
struct nlohmann::adl_serializer<at::Tensor> {
  template <class Json>
  static void to_json(Json& value, const at::Tensor& tensor) {
    value = lockstep::torch::to_value(tensor);
  }
};
