#pragma once

#include <map>
#include <string>

#include "wire/messages.h"

namespace lockstep::agent {

/// Whether what a run needs is on this node: the program, the directory, and the other paths of `configure`.
std::map<std::string, std::string> facts_of(const wire::Configure& configure);

/// Whether one of these is missing.
bool is_anything_missing(const std::map<std::string, std::string>& facts);

}  // namespace lockstep::agent
