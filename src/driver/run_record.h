#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "store/run_directory.h"

namespace lockstep::driver {

/// run.json: what a run is and where it stands, for people, the command line and restore(). Written whole, by rename.
struct RunRecord {
  std::string name;
  std::string state = "running";  ///< running, finished, failed, interrupted
  std::string trainer;
  int num_workers = 1;
  int attempt = 0;
  double created = 0, finished = 0;  ///< seconds since 1970; 0: not yet
  long training_iteration = 0;
  double time_total_s = 0;
  int next_seq = 0;
  std::string trial_id, experiment_id;
  std::string function_sha256;         ///< of function.pkl; empty: there is none
  std::string function_sha256_next;    ///< of the one that is just replacing it
  Value metrics = Value::object();     ///< rank 0's last report
  Value config_run = Value::object();  ///< scaling, failure and checkpoint settings
  Value metadata = Value::object();    ///< the user's own
  std::vector<Failure> failures;       ///< of all attempts
  std::string error;
  std::vector<std::string> warnings;  ///< what is said whatever `verbose` is

  Value to_value() const;
  /// Missing fields keep their defaults; throws StorageError when one is of another type.
  static RunRecord from_value(const Value& value);
};

}  // namespace lockstep::driver
