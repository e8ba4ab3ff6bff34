#pragma once

#include <chrono>
#include <memory>

#include "collective/key_value_store.h"
#include "collective/region.h"

namespace lockstep::collective {

/// Returns the same Region on all ranks. Rank 0 creates it and publishes its pid, the number of its descriptor and a
/// random token. The others open /proc/<pid>/fd/<number>, which the kernel allows to processes of the same user on the
/// same machine. Rank 0 closes the descriptor once all have opened it.
///
/// Either all ranks get it or none. If one cannot open it, all throw CannotShareMemory with its reason, and may use
/// another backend together. If the ranks were given different arguments, or a rank is not in the group, all throw
/// ConfigError instead.
std::shared_ptr<Region> share_region(KeyValueStore& store, int rank, const RegionShape& shape,
                                     std::chrono::milliseconds timeout);

}  // namespace lockstep::collective
