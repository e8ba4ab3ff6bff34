#pragma once

#include <ATen/core/Tensor.h>

#include "collective/communicator.h"

namespace lockstep::torch {

/// The sum, or the average, of every rank's sparse tensor (COO), which may have other indices on each.
/// ConfigError when their shapes differ.
void all_reduce_sparse(collective::Communicator& group, const at::Tensor& tensor, bool average);

}  // namespace lockstep::torch
