#pragma once

#include <cstdint>
#include <lockstep/value.h>
#include <string>

#include "data/order.h"

namespace lockstep::data {

/// Where a pass over the data begins.
struct Start {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< places of the epoch that are done, on all ranks together
};

/// The position of an iterator in the epochs of a data set. Counts; never reads. For one thread at a time.
class Cursor {
 public:
  /// `fingerprint` differs between different data; `total` is the number of rows.
  Cursor(std::string fingerprint, std::int64_t total, const OrderOptions& order);

  /// Begins a pass: where load_state() said, or at the beginning of the next epoch.
  Start begin();
  /// The running pass has reached `position`.
  void advance(std::int64_t position) { now_.position = position; }
  /// The running pass is over.
  void finish();
  /// The next pass begins with this epoch. Throws ConfigError if it is below 0.
  void set_epoch(std::int64_t epoch);
  /// The epoch of the running pass, else of the next.
  std::int64_t epoch() const { return now_.epoch; }
  /// The epoch of the next pass.
  std::int64_t next_epoch() const { return running_ ? now_.epoch + 1 : now_.epoch; }

  /// {"version", "fingerprint", "seed", "window", "epoch", "position"}: under 300 bytes as JSON. `window` is 0 if
  /// nothing is shuffled.
  Value state() const;
  /// The next pass goes on there. Throws ConfigError if the state is not of this data and order.
  void load_state(const Value& state);

 private:
  std::int64_t window() const { return order_.shuffle ? order_.window : 0; }

  std::string fingerprint_;
  std::int64_t total_;
  OrderOptions order_;
  Start now_;             ///< of the running pass, or where the next one begins
  bool running_ = false;  ///< a pass has begun and has not finished
};

}  // namespace lockstep::data
