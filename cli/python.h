#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Becomes the Python interpreter with these arguments: the one beside this executable (a virtual environment's), else
/// python3 in PATH. `command` is whose errors they are. Returns only by throwing EngineError.
[[noreturn]] void become_python(const std::string& command, std::vector<std::string> arguments);

}  // namespace lockstep::cli
