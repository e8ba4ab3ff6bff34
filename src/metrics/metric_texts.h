#pragma once

#include <lockstep/value.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::metrics {

enum class Keys { all, reported };

/// Metrics as short texts for one line: "epoch=3", "val/loss=0.25". Numbers, booleans and short strings, in order, at
/// most `most` of them; names of nested dicts are joined by `/`. Keys::reported leaves out autofilled keys. Control
/// characters become `?`.
std::vector<std::string> metric_texts(const Value& metrics, Keys keys, std::size_t most);

/// A number with four significant digits: "0.1235".
std::string short_number(double number);

}  // namespace lockstep::metrics
