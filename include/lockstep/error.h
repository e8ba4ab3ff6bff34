#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Base of every exception that Lockstep throws. The children differ by what the caller can do about them.
/// Messages have the form "[where] what happened, with the values that matter; what to do".
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The call is wrong: fix its arguments. Nothing was started.
class ConfigError : public Error {
  using Error::Error;
};

/// The disk or object store refused an operation: check it, or retry.
class StorageError : public Error {
  using Error::Error;
};

/// Processes could not be started, or were lost.
class EngineError : public Error {
  using Error::Error;
};

/// A wait reached its timeout.
class TimeoutError : public Error {
  using Error::Error;
};

/// A broken invariant of Lockstep itself: a bug to report.
class InternalError : public Error {
  using Error::Error;
};

/// What ended a worker.
enum class FailureKind {
  exception,      ///< the training function raised
  exit,           ///< the process ended by itself before the function did
  signal,         ///< killed by a signal, including native crashes
  out_of_memory,  ///< killed by the kernel for lack of memory
  heartbeat,      ///< no heartbeat within RunConfig::heartbeat_timeout
  hang,           ///< no progress within RunConfig::hang_timeout
  node,           ///< the node's agent was lost
  callback,       ///< a callback or a backend's hook in the driver raised
  storage,        ///< a checkpoint or another file could not be written or read
  internal        ///< anything else; see the message
};

/// "exception", "exit", ... as written to run.json.
std::string_view to_string(FailureKind kind);
/// The inverse; an unknown word is `internal`.
FailureKind failure_kind(std::string_view word);

/// One rank's failure, as it is sent between processes and stored in run.json.
struct Failure {
  FailureKind kind = FailureKind::internal;
  int rank = -1;     ///< -1: not of one rank
  std::string node;  ///< host name
  int attempt = 0;
  std::string message;                 ///< one line: what happened
  std::string type;                    ///< the exception's class name, if there was one
  std::string traceback;               ///< Python traceback or native stack, may be empty
  std::vector<std::string> log_lines;  ///< the last lines that the rank printed
  double time = 0;                     ///< when the driver heard of it, in seconds since 1970; 0: unknown
};

struct Result;

/// The run failed for good.
class TrainingError : public Error {
 public:
  TrainingError(const std::string& message, std::shared_ptr<const Result> result)
      : Error(message), result_(std::move(result)) {}
  /// The state of the run when it failed, with its last checkpoint and metrics.
  const Result& result() const { return *result_; }
  /// The failures of the result, the first failing rank first.
  const std::vector<Failure>& failures() const;

 private:
  std::shared_ptr<const Result> result_;
};

}  // namespace lockstep
