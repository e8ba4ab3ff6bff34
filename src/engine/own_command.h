#pragma once

#include <string>

namespace lockstep::engine {

/// The command line of this process as one would type it, for messages.
std::string own_command();

}  // namespace lockstep::engine
