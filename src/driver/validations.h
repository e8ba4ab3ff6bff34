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

  /// The checkpoints that wait for their check or are being checked, by seq: they must not be deleted.
  virtual std::set<int> waiting() = 0;
  /// The metrics that were found since the last call, by seq. `all` waits for the checks that are left.
  virtual std::map<int, Value> take(bool all) = 0;
};

}  // namespace lockstep::driver
