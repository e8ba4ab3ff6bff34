#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep {

/// `digits` random hexadecimal digits from the operating system's generator.
std::string random_hex(int digits);

/// A number that is unique in this process.
int next_run_id();

/// "2026-01-31_12-59-59", local time.
std::string date_string(WallTime time);

/// "2026-01-31 12:59:59", local time.
std::string time_string(WallTime time);

/// Why `name` cannot be the name of a run ("contains '/'"), or empty: it must be one path component, not `.` or `..`,
/// without control characters, of at most 200 bytes.
std::string_view run_name_problem(std::string_view name);

}  // namespace lockstep
