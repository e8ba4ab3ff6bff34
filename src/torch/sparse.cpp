#include "torch/sparse.h"

#include <ATen/ATen.h>
#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "torch/elements.h"

namespace lockstep::torch {
namespace {

using collective::Buffer;
using collective::ConstBuffer;
using Group = collective::Group;

/// Every rank's tensor; `counts` is the number of rows of each.
Tensors gather_unequal(Group& group, const at::Tensor& mine, const std::vector<std::int64_t>& counts, int along) {
  const Elements own(mine);
  const std::vector<ConstBuffer> in(counts.size(), ConstBuffer{own.data(), own.bytes()});
  Tensors all;
  std::vector<Buffer> out;
  for (const auto count : counts) {
    auto shape = mine.sizes().vec();
    shape[static_cast<std::size_t>(along)] = count;
    all.push_back(at::empty(shape, mine.options()));
    out.push_back({all.back().data_ptr(), all.back().nbytes()});
  }
  group.all_to_all(in, out);
  return all;
}

/// The description of a rank's sparse tensor, in a form that can be gathered.
using SparseShape = std::array<std::int64_t, 16>;

SparseShape shape_of(const at::Tensor& tensor) {
  SparseShape shape{};
  TORCH_CHECK_VALUE(tensor.dim() <= 13, "[lockstep:all_reduce] a sparse tensor of ", tensor.dim(),
                    " dimensions; there may be 13");
  shape[0] = tensor.sparse_dim();
  shape[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.begin() + 2);
  shape.back() = tensor._nnz();
  return shape;
}

}  // namespace

void all_reduce_sparse(Group& group, const at::Tensor& tensor, bool average) {
  // Every rank gets all tensors, and adds values at the same indices.
  const at::Tensor mine = tensor.coalesce();
  const SparseShape shape = shape_of(mine);
  std::vector<SparseShape> shapes(static_cast<std::size_t>(group.size()));
  group.all_gather(shape.data(), collective::rows(static_cast<void*>(shapes.data()), sizeof shape, group.size()),
                   sizeof shape);
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    if (!std::equal(shape.begin(), shape.end() - 1, shapes[rank].begin()))
      throw ConfigError("[lockstep:all_reduce] the sparse tensors of ranks " + std::to_string(group.rank()) + " and " +
                        std::to_string(rank) + " have other shapes; give all ranks the same");
    counts.push_back(shapes[rank].back());
  }
  const auto indices = gather_unequal(group, mine.indices(), counts, 1);
  const auto values = gather_unequal(group, mine.values(), counts, 0);
  // The indices were checked already.
  at::Tensor sum =
      at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values, 0), tensor.sizes(), tensor.options())
          .coalesce();
  if (average) sum.div_(group.size());
  tensor.copy_(sum);
}

}  // namespace lockstep::torch
