#include "collective/reduce_kernels.h"
#include "collective/reduce_sets.h"

namespace lockstep::collective {

ReduceKernel portable_kernel(DType dtype, ReduceOp op) { return find_kernel(dtype, op); }

}  // namespace lockstep::collective
