#pragma once

#include <lockstep/tune/search.h>

#include <memory>
#include <string>
#include <vector>

#include "tune/searcher.h"

namespace lockstep::tune {

/// A Searcher that a user derived, as one of points: its configurations must fit `space`, and its values are those that
/// trials reported. `modes`: "min" or "max", one for each metric.
std::shared_ptr<PointSearcher> adapted(std::shared_ptr<Searcher> own, const Space& space,
                                       std::vector<std::string> modes, std::uint64_t seed);

}  // namespace lockstep::tune
