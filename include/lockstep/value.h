#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// A plain value: null, bool, integer, float, string, list, dict (keys in the order they were set), or bytes.
/// Metrics, configurations and the plain part of a checkpoint are Values; the same values exist in Python.
using Value = nlohmann::ordered_json;

/// Bytes whose meaning the holder does not look into.
using Bytes = std::vector<std::uint8_t>;

}  // namespace lockstep

/// Reading a key that a dict does not have, as in `session.config()["epochs"]`, throws ConfigError that names the key
/// and those there are. Only writing, to a dict that is not const, adds one.
template <>
const lockstep::Value& lockstep::Value::operator[](const std::string& key) const;
