#include "base/version.h"

namespace lockstep {

const char* const kVersion = LOCKSTEP_VERSION;

}  // namespace lockstep
