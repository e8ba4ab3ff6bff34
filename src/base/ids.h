#pragma once

#include <lockstep/error.h>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep {

/// `digits` random hexadecimal digits from the operating system's generator.
std::string random_hex(int digits);

/// "2026-01-31_12-59-59", local time.
std::string date_string(WallTime time);

/// "2026-01-31 12:59:59", local time.
std::string time_string(WallTime time);

/// Throws ConfigError unless `name` is one path component: not empty, `.`, or `..`; no `/`, no control character;
/// at most 200 bytes.
void check_run_name(std::string_view name);

}  // namespace lockstep
