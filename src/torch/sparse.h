#pragma once

#include <ATen/core/Tensor.h>

#include "collective/group.h"

namespace lockstep::torch {

/// The sum or average of every rank's sparse tensor (COO); indices may differ between ranks. Throws ConfigError if the
/// shapes differ.
void all_reduce_sparse(collective::Group& group, const at::Tensor& tensor, bool average);

}  // namespace lockstep::torch
