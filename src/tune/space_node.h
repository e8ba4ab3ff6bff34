#pragma once

#include <lockstep/value.h>

#include <string>
#include <vector>

namespace lockstep::tune {

/// A part of a search space: a constant, a dict or list with domains inside, or a domain.
struct SpaceNode {
  enum class Kind { constant, dict, list, domain, computed };

  Kind kind = Kind::constant;
  Value constant;                   ///< also the text of a `computed` one (sample_from)
  std::vector<std::string> keys;    ///< dict
  std::vector<SpaceNode> children;  ///< dict, list; of a category the choices
  int dimension = -1;               ///< domain
};

}  // namespace lockstep::tune
