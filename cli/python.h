#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Replaces this process by the Python interpreter with these arguments: the one next to this executable (of a virtual
/// environment), otherwise python3 in PATH. `command` is named in errors. Returns only by throwing EngineError.
[[noreturn]] void become_python(const std::string& command, std::vector<std::string> arguments);

}  // namespace lockstep::cli
