#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

namespace lockstep {

/// A Failure as it is written to run.json and sent on the wire.
Value to_value(const Failure& failure);
/// The inverse; missing fields keep their defaults.
Failure failure_from_value(const Value& value);

}  // namespace lockstep
