#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// A plain value: null, bool, integer, float, string, list, dict (keys in the order they were set), or bytes.
/// Metrics, configurations and the plain part of a checkpoint are Values; the same values exist in Python.
using Value = nlohmann::ordered_json;

/// Opaque bytes.
using Bytes = std::vector<std::uint8_t>;

}  // namespace lockstep

/// Reading a missing key of a dict, as in `session.config()["epochs"]`, throws ConfigError that names the key and the
/// existing ones. Only writing to a non-const dict adds a key.
template <>
const lockstep::Value& lockstep::Value::operator[](const std::string& key) const;
