#include <lockstep/array.h>
#include <lockstep/error.h>
#include <lockstep/torch/tensor_value.h>

namespace lockstep::torch {
namespace {

using ::torch::Tensor;

/// Why the tensor is no metric, and what to write; nullptr if it is one.
const char* objection(const Tensor& tensor) {
  if (!tensor.defined()) return "is not defined";
  if (tensor.layout() != ::torch::kStrided || tensor.is_nested())
    return "is sparse or nested; report its .to_dense() or its .values()";
  if (tensor.is_quantized()) return "is quantized; report its .dequantize()";
  if (tensor.is_meta()) return "is a meta tensor, which has no values";
  if (tensor.is_complex()) return "is of complex numbers; report ::torch::real and ::torch::imag of it";
  return nullptr;
}

/// numpy's name; nullptr if Array has no such type.
const char* dtype_of(::torch::ScalarType type) {
  switch (type) {
    case ::torch::kBool:
      return "bool";
    case ::torch::kInt8:
      return "int8";
    case ::torch::kInt16:
      return "int16";
    case ::torch::kInt32:
      return "int32";
    case ::torch::kInt64:
      return "int64";
    case ::torch::kUInt8:
      return "uint8";
    case ::torch::kUInt16:
      return "uint16";
    case ::torch::kUInt32:
      return "uint32";
    case ::torch::kUInt64:
      return "uint64";
    case ::torch::kFloat16:
      return "float16";
    case ::torch::kFloat32:
      return "float32";
    case ::torch::kFloat64:
      return "float64";
    default:
      return nullptr;
  }
}

}  // namespace

Value to_value(const Tensor& tensor) {
  if (const char* why = objection(tensor)) throw ConfigError(std::string("[report] a tensor in the metrics ") + why);
  const ::torch::NoGradGuard no_grad;
  Tensor plain = tensor.detach().cpu().resolve_neg().contiguous();
  if (dtype_of(plain.scalar_type()) == nullptr) plain = plain.to(::torch::kFloat32);
  return Array{dtype_of(plain.scalar_type()),
               plain.sizes().vec(),
               {static_cast<const std::uint8_t*>(plain.const_data_ptr()), plain.nbytes()}};
}

}  // namespace lockstep::torch
