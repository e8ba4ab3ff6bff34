#pragma once

#include <map>
#include <string>

namespace lockstep::sys {

/// This process's environment now.
std::map<std::string, std::string> environment();

}  // namespace lockstep::sys
