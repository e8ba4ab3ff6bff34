#pragma once

#include <string>

namespace lockstep::cli {

/// Seconds of "90s", "30m", "12h", "7d" or "2w"; a plain number has `unit`, if given. Throws UsageError, which names
/// `option`.
double parse_duration(const std::string& text, const std::string& option, const std::string& unit);
/// Bytes of "10GB", "1.5 TB", "500M", "512KiB" or "4096"; kB, MB, GB and TB are powers of 1000. Throws UsageError.
double parse_size(const std::string& text, const std::string& option);

/// "3d 04h"; below a day as human_duration.
std::string age_text(double seconds);

}  // namespace lockstep::cli
