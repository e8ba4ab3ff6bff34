#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep::storage {

/// The pause before try `next` (2, 3, ...): it doubles, up to 10 s, and a random half of it is left out, so that many
/// clients do not come back at once. `random` is from 0 to 1. Pure.
Seconds pause_before(int next, double random);

/// Whether an error of a store will not go away by itself: no such bucket, wrong credentials, no permission. Pure.
bool is_permanent(std::string_view error);

/// Calls `body` until it returns. After an error that may go away it is called again, unless `deadline` has passed or
/// would pass in the pause. Throws StorageError "[storage] could not <what>: <cause>".
void with_retries(const std::string& what, Instant deadline, const std::function<void()>& body);

}  // namespace lockstep::storage
