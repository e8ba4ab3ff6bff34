#pragma once

#include <map>
#include <string>

#include "wire/messages.h"

namespace lockstep::agent {

/// Whether a variable of the driver's environment travels to other nodes: those of Lockstep, Python and the frameworks.
/// All others, such as PATH and HOME, are the node's own.
bool travels(const std::string& name);

/// The environment of this agent, with those variables of `drivers` that travel.
std::map<std::string, std::string> environment_here(const std::map<std::string, std::string>& drivers);

/// Why the workers of `start` cannot use their run directory on the node `name`: it is not on a file system that all
/// nodes share. Empty: they can.
std::string not_shared(const wire::StartAttempt& start, const std::string& name);

}  // namespace lockstep::agent
