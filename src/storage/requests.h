#pragma once

#include <lockstep/value.h>

#include "storage/places.h"

namespace lockstep::storage {

/// Does what a request of store::ObjectStore asks for and returns the answer; {"error": ...} if it failed or is no
/// request. Throws nothing. Any thread may call.
Value answer(const Value& request, Places& places);

}  // namespace lockstep::storage
