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

/// The disk or object store refused: look outside, or try again.
class StorageError : public Error {
  using Error::Error;
};

/// Processes could not be started, or were lost.
class EngineError : public Error {
  using Error::Error;
};

/// A wait ended without what it waited for.
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
  signal,         ///< killed by a signal (a native crash too)
  out_of_memory,  ///< killed by the kernel for want of memory
  heartbeat,      ///< the process stopped beating its heart
  hang,           ///< no progress within RunConfig::hang_timeout
  node,           ///< the node's agent was lost
  callback,       ///< a callback in the driver raised
  storage,        ///< a checkpoint could not be written or committed
  internal        ///< anything else; the message tells
};

/// "exception", "exit", ... as written to run.json.
std::string_view to_string(FailureKind kind);
/// The inverse; an unknown word is `internal`.
FailureKind failure_kind(std::string_view word);

/// One rank's failure, as it travels between processes and stands in run.json.
struct Failure {
  FailureKind kind = FailureKind::internal;
  int rank = -1;     ///< -1: not of one rank
  std::string node;  ///< host name
  int attempt = 0;
  std::string message;                 ///< one line: what happened
  std::string type;                    ///< the exception's class name, where there was one
  std::string traceback;               ///< Python traceback or native stack, may be empty
  std::vector<std::string> log_lines;  ///< the last lines that the rank printed
  std::vector<unsigned char> pickled;  ///< the exception itself, pickled; opaque to all but the user's own process
};

struct Result;

/// The run failed for good.
class TrainingError : public Error {
 public:
  TrainingError(const std::string& message, std::shared_ptr<const Result> result)
      : Error(message), result_(std::move(result)) {}
  /// What the run came to until then, with its last checkpoint and metrics.
  const Result& result() const { return *result_; }
  /// Those of the result: the first failing rank first.
  const std::vector<Failure>& failures() const;

 private:
  std::shared_ptr<const Result> result_;
};

}  // namespace lockstep
