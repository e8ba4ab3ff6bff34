#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep {

/// A plain value: null, bool, integer, float, string, list, dict (keys in the order they were set), or bytes.
/// Metrics, configurations and the plain part of a checkpoint are Values; the same values exist in Python.
using Value = nlohmann::ordered_json;

/// Bytes whose meaning the holder does not look into.
using Bytes = std::vector<std::uint8_t>;

}  // namespace lockstep
