#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

namespace lockstep {

/// A Failure as it stands in run.json and on the wire; the pickled exception only when asked for.
Value to_value(const Failure& failure, bool with_pickled);
/// The inverse; missing fields keep their defaults.
Failure failure_from_value(const Value& value);

}  // namespace lockstep
