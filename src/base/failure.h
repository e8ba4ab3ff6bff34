#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <exception>

namespace lockstep {

/// A Failure as it is written to run.json and sent on the wire.
Value to_value(const Failure& failure);
/// The inverse; missing fields keep their defaults.
Failure failure_from_value(const Value& value);

/// The failure of a function that threw `error`, of no rank. The native stack that LibTorch appends to a message
/// becomes the traceback.
Failure failure_of(const std::exception& error);

}  // namespace lockstep
