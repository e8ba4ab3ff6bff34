#include "torch/elements.h"

#include <optional>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace lockstep::torch {
namespace {

using collective::DType;

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kComplexFloat:
      return DType::float32;
    case at::kDouble:
    case at::kComplexDouble:
      return DType::float64;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kHalf:
      return DType::float16;
    case at::kChar:
      return DType::int8;
    case at::kShort:
      return DType::int16;
    case at::kInt:
      return DType::int32;
    case at::kLong:
      return DType::int64;
    case at::kByte:
      return DType::uint8;
    case at::kUInt16:
      return DType::uint16;
    case at::kUInt32:
      return DType::uint32;
    case at::kUInt64:
      return DType::uint64;
    case at::kBool:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

std::optional<collective::ReduceOp> op_of(c10d::ReduceOp::RedOpType op) {
  using collective::ReduceOp;
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<Elements> elements_of(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

void store_all(const std::vector<Elements>& list) {
  for (const auto& each : list) each.store();
}

Reduction reduction_of(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  using collective::ReduceOp;
  const auto type = dtype_of(tensor.scalar_type());
  const auto how = op_of(op);
  TORCH_CHECK_TYPE(type, "[", what, "] cannot combine elements of type ", tensor.scalar_type(),
                   "; convert the tensor to another type");
  const bool known = how && collective::supported(*type, *how);
  TORCH_CHECK_VALUE(known && (!tensor.is_complex() || how == ReduceOp::sum || how == ReduceOp::avg), "[", what,
                    "] this operation is not defined for elements of type ", tensor.scalar_type(),
                    "; use ReduceOp.SUM, or another type");
  return {*type, *how, tensor.is_complex() ? std::size_t{2} : std::size_t{1}};
}

void check_plain(const Refuse& refuse, at::ArrayRef<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    c10d::assertCPU(refuse, {tensor});
    c10d::assertDense(refuse, {tensor});
  }
}

void check_list(const Refuse& refuse, const Tensors& list, const at::Tensor& one, int world) {
  if (list.size() != static_cast<std::size_t>(world))
    refuse("a list of " + std::to_string(list.size()) + " tensors in a group of " + std::to_string(world) +
           "; give one for every rank");
  check_plain(refuse, list);
  c10d::assertTypeAndSizesMatch(refuse, list, one.options(), one.sizes());
}

void check_rows(const Refuse& refuse, const at::Tensor& many, const at::Tensor& one, int world) {
  check_plain(refuse, {many, one});
  if (many.scalar_type() != one.scalar_type() || many.numel() != one.numel() * world)
    refuse("a tensor of " + std::to_string(many.numel()) + " " + c10::toString(many.scalar_type()) + " and one of " +
           std::to_string(one.numel()) + " " + c10::toString(one.scalar_type()) + " in a group of " +
           std::to_string(world) + "; the first must be as large as " + std::to_string(world) + " of the second");
}

}  // namespace lockstep::torch
