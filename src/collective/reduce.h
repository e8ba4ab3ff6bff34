#pragma once

#include <cstddef>
#include <span>

#include "collective/dtype.h"

namespace lockstep::collective {

/// out[i] = in[0][i] op in[1][i] op ..., strictly from left to right, so that the result depends on nothing but the
/// elements and their order: not on `count`, on alignment or on the machine's vector width.
///
/// `out` may be one of the inputs, and may not overlap one otherwise. Buffers are aligned to the element. The pair of
/// dtype and op must be `supported`. Safe to call from any thread.
void reduce(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op);

/// The same with instructions that every machine of this architecture has: what `reduce` is compared with.
void reduce_portable(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op);

}  // namespace lockstep::collective
