#pragma once

#include <cstddef>

#include "collective/dtype.h"

namespace lockstep::collective {

/// One loop over `count` elements of `buffers` buffers. An average divides by `ranks`.
using ReduceKernel = void (*)(void* out, const void* const* in, std::size_t buffers, std::size_t count,
                              std::size_t ranks);

/// out[i] = in[i] as float32.
using WidenKernel = void (*)(float* out, const void* in, std::size_t count);

/// Null if the operation is not defined for these elements.
ReduceKernel portable_kernel(DType dtype, ReduceOp op);
/// Only for machines with AVX2 and F16C. On other architectures it equals the portable one.
ReduceKernel avx2_kernel(DType dtype, ReduceOp op);
/// The same for elements that are already in the type in which they are combined.
ReduceKernel portable_partial_kernel(DType dtype, ReduceOp op);
ReduceKernel avx2_partial_kernel(DType dtype, ReduceOp op);
/// Null if the elements are not narrower than float32.
WidenKernel portable_widen_kernel(DType dtype);
WidenKernel avx2_widen_kernel(DType dtype);

}  // namespace lockstep::collective
