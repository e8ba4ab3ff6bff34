#pragma once

#include <lockstep/value.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "sys/files.h"

namespace lockstep::metrics {

/// A destination of rank 0's results. The driver calls it from one thread: start() once, then write() for each result,
/// flush() now and then, close() at the end. All functions throw StorageError with the path if the disk fails;
/// destructors never throw, and flush what they can.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  /// Opens the destination, and continues after what an earlier driver of the run wrote. `config` is the run's
  /// configuration, which every result repeats.
  virtual void start(const Value& config) = 0;
  /// One result, a dict with the autofilled keys; `step` is its training iteration.
  virtual void write(const Value& result, long step) = 0;
  /// Afterwards other processes can read everything that was written.
  virtual void flush() = 0;
  /// Flushes and closes. A second call does nothing.
  virtual void close() = 0;
};

/// The sinks of every run: result.json, progress.csv and a TensorBoard event file, in the run directory `directory`.
std::vector<std::unique_ptr<ReportSink>> default_sinks(const std::filesystem::path& directory,
                                                       sys::Files& files = sys::files());

}  // namespace lockstep::metrics
