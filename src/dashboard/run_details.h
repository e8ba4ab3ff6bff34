#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "sys/beneath_files.h"

namespace lockstep::dashboard {

/// All that the page of one run shows, except its curves and the contents of logs: {"record": run.json, "state",
/// "duration", "params", "checkpoints", "logs": [{"name", "size"}]}.
std::string run_json(const std::string& id, const std::filesystem::path& path, sys::BeneathFiles& files);

/// A piece of a file in the run's logs/ as {"size", "from", "next", "text"}: at most `most` bytes from `from`, or the
/// last ones if it is negative. What is not UTF-8 becomes U+FFFD; a character is never cut in two. `next` is where to
/// go on. Throws ConfigError if `name` is not one path component.
std::string log_json(const std::filesystem::path& path, const std::string& name, std::int64_t from, std::int64_t most,
                     sys::BeneathFiles& files);

}  // namespace lockstep::dashboard
