#pragma once

#include <lockstep/value.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::driver {

/// The workers of the attempt, as Hooks see them. Valid while a hook runs, and for its thread alone.
class WorkerCalls {
 public:
  virtual ~WorkerCalls() = default;

  /// Has `rank`, or every rank, make the call, and waits for the answers, which come in the order of the ranks. Throws
  /// EngineError when the attempt is over: a worker has died, or the run is being stopped.
  virtual std::vector<Bytes> call(std::optional<int> rank, const Bytes& payload) = 0;
  /// How many there are; 0 if none was placed.
  virtual int size() const = 0;
};

/// Code that the driver runs in its thread while all workers wait for calls. An attempt ends when it throws, and as
/// after any failure another one may follow.
class Hooks {
 public:
  virtual ~Hooks() = default;

  /// The hook that runs or ran last, for messages: "Greeter.on_start()".
  virtual std::string name() const = 0;
  /// The workers of an attempt are there, and their functions have not begun. `kept`: they are those of an earlier run.
  virtual void before(WorkerCalls& workers, bool kept) = 0;
  /// The functions have returned, or the run is over and no worker is left to be called. Follows each before(), or
  /// several when attempts failed; not in a run that keeps its workers. What it throws is a warning.
  virtual void after(WorkerCalls& workers) = 0;
};

}  // namespace lockstep::driver
