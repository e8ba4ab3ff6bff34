#include "collective/reduce_kernels.h"
#include "collective/reduce_sets.h"

namespace lockstep::collective {

ReduceKernel portable_kernel(DType dtype, ReduceOp op) { return find_kernel<false>(dtype, op); }
ReduceKernel portable_partial_kernel(DType dtype, ReduceOp op) { return find_kernel<true>(dtype, op); }
WidenKernel portable_widen_kernel(DType dtype) { return find_widen_kernel(dtype); }

}  // namespace lockstep::collective
