#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "data/source.h"

namespace lockstep::data {

/// Counts what a source skips. Any thread may call.
class Skips {
 public:
  /// What was skipped in the part `part` of the source: noted once, however often the part is read.
  void add(std::int64_t part, std::int64_t count, const std::vector<std::string>& places) {
    const std::lock_guard lock(mutex_);
    if (count == 0 || !counts_.emplace(part, count).second) return;
    total_.count += count;
    for (const std::string& place : places)
      if (total_.places.size() < kMostPlaces) total_.places.push_back(place);
  }
  Skipped total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

  /// Places beyond these are only counted.
  static constexpr std::size_t kMostPlaces = 20;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> counts_;
  Skipped total_;
};

}  // namespace lockstep::data
