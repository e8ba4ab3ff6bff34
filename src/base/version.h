#pragma once

namespace lockstep {

/// "1.2.3"
extern const char* const kVersion;

}  // namespace lockstep
