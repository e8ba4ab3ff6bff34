#pragma once

namespace lockstep::sys {

/// Set in the environment of the agent and of every process that it starts, so that the engine finds them if the agent
/// is killed.
inline constexpr const char* kAgentId = "LOCKSTEP_AGENT_ID";

}  // namespace lockstep::sys
