#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collective/region.h"

namespace lockstep::collective {

/// The few words that ranks exchange to find each other: any key-value store that all of them reach, such as a
/// c10d::Store. Each group needs keys of its own (a prefix).
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until somebody has set it. Throws after the timeout.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// Gives all ranks the same Region. Rank 0 makes it and tells its pid, the number of its descriptor and a random token;
/// the others open /proc/<pid>/fd/<number>, which the kernel allows to processes of the same user on the same machine.
/// Rank 0 closes the descriptor when all have done so.
///
/// All ranks get it or none. If one cannot, all throw CannotShareMemory with its reason, and may turn to something else
/// together. If the ranks are not told the same or a rank is none of the group, that is ConfigError on all of them, and
/// not CannotShareMemory.
std::shared_ptr<Region> share_region(Rendezvous& store, int rank, const RegionShape& shape,
                                     std::chrono::milliseconds timeout);

}  // namespace lockstep::collective
