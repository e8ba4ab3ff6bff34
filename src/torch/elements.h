#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "collective/group.h"

namespace lockstep::torch {

using Tensors = std::vector<at::Tensor>;

/// A tensor's elements in contiguous memory: its own if it is contiguous, otherwise a copy.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : tensor_(tensor), dense_(tensor.resolve_conj().resolve_neg().contiguous()) {}

  std::byte* data() const { return static_cast<std::byte*>(dense_.data_ptr()); }
  std::size_t bytes() const { return dense_.nbytes(); }
  std::size_t size() const { return static_cast<std::size_t>(dense_.numel()); }
  /// Copies what was written to data() back into the tensor.
  void store() const {
    if (!dense_.is_same(tensor_)) tensor_.copy_(dense_);
  }

 private:
  at::Tensor tensor_, dense_;
};

std::vector<Elements> elements_of(const Tensors& tensors);
void store_all(const std::vector<Elements>& list);

/// The element memory of several tensors.
template <class Pointer>
std::vector<Pointer> places(const std::vector<Elements>& list) {
  std::vector<Pointer> pointers;
  pointers.reserve(list.size());
  for (const auto& each : list) pointers.push_back(each.data());
  return pointers;
}

/// How elements are combined. A complex number counts as two.
struct Reduction {
  collective::DType dtype;
  collective::ReduceOp op;
  std::size_t parts = 1;

  std::size_t count(const Elements& elements) const { return elements.size() * parts; }
};

/// How `op` combines the tensor's elements. Throws TypeError or ValueError, prefixed with `what`, if it is not defined.
Reduction reduction_of(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op);

// ---- checks: `refuse` throws what it is told ----------------------------------------------------------------------

using Refuse = std::function<void(const std::string&)>;

/// In CPU memory and strided.
void check_plain(const Refuse& refuse, at::ArrayRef<at::Tensor> tensors);
/// One tensor for every rank, each like `one`.
void check_list(const Refuse& refuse, const Tensors& list, const at::Tensor& one, int world);
/// `many` holds `one` for every rank.
void check_rows(const Refuse& refuse, const at::Tensor& many, const at::Tensor& one, int world);

}  // namespace lockstep::torch
