#pragma once

#include <lockstep/value.h>

#include <string>

namespace lockstep::dashboard {

/// `value` as JSON that browsers read: NaN and infinity, which JSON lacks, become the texts "NaN", "Infinity" and
/// "-Infinity"; invalid UTF-8 is replaced.
std::string page_json(Value value);

}  // namespace lockstep::dashboard
