#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tune/scheduler.h"

namespace lockstep::tune {

using ComputeValue = std::function<Value(const Value& spec)>;

/// The functions of sample_from() in a param_space, in their order, and the space with their places in this list as
/// their ids: the same space gives the same ids in every process.
struct ComputedValues {
  Value space;
  std::vector<ComputeValue> functions;

  /// Throws ConfigError if the space has the id of no function: it was read from a database.
  static ComputedValues of(const Value& param_space);
};

/// A configuration with the values that the functions compute. Throws ConfigError if they need each other.
Value with_computed_values(const std::vector<ComputeValue>& functions, Value config);

/// `inner`, which gets complete configurations.
std::unique_ptr<Scheduler> computing(std::unique_ptr<Scheduler> inner, std::vector<ComputeValue> functions);

}  // namespace lockstep::tune
