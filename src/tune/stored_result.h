#pragma once

#include <lockstep/value.h>

#include <span>
#include <string_view>

namespace lockstep::tune {

/// Keys of results that an experiment's database does not keep: the trial's own files have them.
std::span<const std::string_view> keys_not_stored();
/// A result without them.
Value stored_result(const Value& result);

}  // namespace lockstep::tune
