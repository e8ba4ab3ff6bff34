#include "collective/reduce_kernels.h"
#include "collective/reduce_sets.h"

// Compiled for AVX2 and F16C where the architecture has them; see CMakeLists.txt.

namespace lockstep::collective {

ReduceKernel avx2_kernel(DType dtype, ReduceOp op) { return find_kernel<false>(dtype, op); }
ReduceKernel avx2_partial_kernel(DType dtype, ReduceOp op) { return find_kernel<true>(dtype, op); }
WidenKernel avx2_widen_kernel(DType dtype) { return find_widen_kernel(dtype); }

}  // namespace lockstep::collective
