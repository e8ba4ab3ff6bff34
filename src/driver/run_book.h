#pragma once

#include <lockstep/result.h>

#include <string>

#include "driver/actions.h"
#include "driver/clock.h"
#include "driver/run_plan.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "sys/private_files.h"

namespace lockstep::driver {

/// The run's directory and its record, run.json. A run without a directory has only the record, in memory. Used by the
/// driver's thread only.
class RunBook {
 public:
  RunBook(const RunPlan& plan, Clock& clock);

  /// Makes the directory, or opens the one that is restored, and locks it. Throws ConfigError or StorageError.
  void open();
  /// Writes run.json and the other files that restore() needs.
  void write_settings();
  void save();

  sys::Files& files() { return files_; }
  store::RunDirectory& directory() { return directory_; }
  store::RunRecord& record() { return record_; }
  const store::RunRecord& record() const { return record_; }
  /// The number of the first attempt in this process; 0 unless the run was restored.
  int first_attempt() const { return first_attempt_; }
  /// The state in which an earlier process left a restored run.
  const std::string& state_before() const { return state_before_; }
  /// How long the run has taken, including earlier processes.
  Seconds time_total() const { return Seconds(time_before_) + time_here(); }
  /// How long it has taken in this process.
  Seconds time_here() const { return clock_.now() - started_; }

  /// Returns false if the same warning was added before.
  bool add_warning(const std::string& text);
  /// Records the end of the run.
  void finish(const EndRun& end);
  /// Records that the run has failed after all.
  void fail(const std::string& error);
  /// The run ends with an exception. Records its error, if that can be written.
  void leave(const std::string& error);
  std::filesystem::path stacks_file(int attempt) const;

 private:
  void save_function();

  const RunPlan& plan_;
  Clock& clock_;
  sys::PrivateFiles files_;
  store::RunDirectory directory_;
  store::RunRecord record_;
  Instant started_{};
  double time_before_ = 0;
  std::string state_before_;
  int first_attempt_ = 0;
  bool saved_ = false;  ///< run.json was written by this object
};

}  // namespace lockstep::driver
