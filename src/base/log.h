#pragma once

#include <string_view>

namespace lockstep {

/// Writes Lockstep's own messages to standard error: "lockstep: ...", with the level's name if it is above info. Any
/// thread may call. LOCKSTEP_LOG_LEVEL (debug, info, warning, error, off; default warning) is read once.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace lockstep
