#pragma once

#include <lockstep/value.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "sys/files.h"

namespace lockstep::metrics {

/// A place where rank 0's results go. The driver calls it from one thread: start() once, then write() for each result,
/// flush() now and then, close() at the end. Everything throws StorageError with the path when the disk refuses;
/// destructors never throw, and flush what they can.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  /// Opens the place, going on after what a restored run finds there. `config` is the run's configuration, which
  /// results repeat.
  virtual void start(const Value& config) = 0;
  /// One result, a dict with the autofilled keys; `step` is its training iteration.
  virtual void write(const Value& result, long step) = 0;
  /// Afterwards another process can read all that was written.
  virtual void flush() = 0;
  /// Flushes and closes. A second call does nothing.
  virtual void close() = 0;
};

/// The sinks of every run: result.json, progress.csv and a TensorBoard event file, in the run directory `directory`.
std::vector<std::unique_ptr<ReportSink>> default_sinks(const std::filesystem::path& directory,
                                                       sys::Files& files = sys::files());

}  // namespace lockstep::metrics
