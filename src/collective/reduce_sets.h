#pragma once

#include <cstddef>

#include "collective/dtype.h"

namespace lockstep::collective {

/// One loop over `count` elements of `ranks` buffers.
using ReduceKernel = void (*)(void* out, const void* const* in, std::size_t ranks, std::size_t count);

/// Null if the operation is not defined for these elements.
ReduceKernel portable_kernel(DType dtype, ReduceOp op);
/// Only for machines with AVX2 and F16C. On other architectures it equals the portable one.
ReduceKernel avx2_kernel(DType dtype, ReduceOp op);

}  // namespace lockstep::collective
