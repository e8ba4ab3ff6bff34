#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::storage {

/// Calls `job` with each number below `count`, in up to `threads` threads. After an exception no further job begins,
/// and the first one is thrown when those that run have ended.
void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& job);

}  // namespace lockstep::storage
