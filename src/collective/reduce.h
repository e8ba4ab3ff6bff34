#pragma once

#include <cstddef>
#include <span>

#include "collective/dtype.h"

namespace lockstep::collective {

/// out[i] = in[0][i] op in[1][i] op ..., strictly from left to right. The result depends only on the elements and their
/// order, not on `count`, alignment or the machine's vector width.
///
/// `out` may be one of the inputs, but must not otherwise overlap one. Buffers are aligned to the element. The
/// combination of dtype and op must be `supported`. Any thread may call it.
void reduce(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op);

/// The same with instructions that every machine of this architecture has; the reference for tests of `reduce`.
void reduce_portable(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op);

/// The type in which elements are combined: float32 for bfloat16 and float16, otherwise the type itself.
DType accumulator_of(DType dtype);
/// out[i] = in[i] as float32. The dtype is bfloat16 or float16.
void widen(float* out, const void* in, std::size_t count, DType dtype);
/// Combines what was combined before: `in` holds elements of `accumulator_of(dtype)`, each made of some of the `ranks`
/// elements. As reduce(), but `avg` divides by `ranks`, and `out` gets elements of `dtype`, rounded once.
void reduce_partial(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op,
                    std::size_t ranks);
/// The same with instructions that every machine of this architecture has; the reference for tests.
void reduce_partial_portable(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op,
                             std::size_t ranks);

}  // namespace lockstep::collective
