#pragma once

#include <lockstep/value.h>

namespace lockstep::tune {

/// A part of a configuration for people: Python's tuples, which are stored as {"$tuple": [...]}, become lists, and its
/// objects, which are stored with a "$text", become that text.
Value shown(const Value& value);

}  // namespace lockstep::tune
