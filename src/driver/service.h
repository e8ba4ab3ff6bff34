#pragma once

#include <lockstep/value.h>

#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace lockstep::driver {

/// A server that the driver runs for the workers, for example one through which the ranks find each other. It lives as
/// long as the run and serves one attempt after another, in the driver's thread. No call blocks.
class Service {
 public:
  virtual ~Service() = default;

  /// Its key in Begin's `services`.
  virtual std::string name() const = 0;
  /// Throws ConfigError if it cannot serve this many ranks. Called before anything starts.
  virtual void check(int world_size) const = 0;

  /// All ranks of an attempt are about to start. Nothing of an earlier attempt is served any more. `address` is this
  /// machine's, as the ranks reach it. Throws EngineError.
  virtual void begin_attempt(int attempt, int world_size, const std::string& address) = 0;
  /// What `rank` gets in its Begin.
  virtual Value begin_of(int rank) const = 0;
  /// `rank` died and is about to be replaced; begin_of(rank) is then for the new worker. Returns a reason if the others
  /// cannot continue and all ranks must restart. Throws EngineError.
  virtual std::optional<std::string> lose(int rank, Instant now) = 0;

  /// Readable when serve() has something to do.
  virtual int fd() const = 0;
  /// When serve() is due even if `fd` is not readable.
  virtual std::optional<Instant> deadline() const = 0;
  /// Does what can be done now. Returns RankStuck, RankLeft, RankJoined and RankNeedless events of the attempt.
  virtual std::vector<Event> serve(Instant now) = 0;
};

}  // namespace lockstep::driver
