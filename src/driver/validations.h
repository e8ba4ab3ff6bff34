#pragma once

#include <lockstep/value.h>

#include <map>
#include <set>

namespace lockstep::driver {

/// The file of a checkpoint that is to be checked.
constexpr const char* kValidationName = "lockstep_validation.json";

/// Checks of checkpoints that go on beside the run. The driver's thread calls it; what it throws is an Error.
class Validations {
 public:
  virtual ~Validations() = default;

  /// The checkpoints that are not checked yet, by seq: they must not be deleted. Does not wait.
  virtual std::set<int> waiting() = 0;
  /// Whether those that wait will be checked: an interrupt may have ended the checks.
  virtual bool goes_on() = 0;
  /// The metrics that were found since the last call, by seq. Does not wait.
  virtual std::map<int, Value> take() = 0;
};

}  // namespace lockstep::driver
