#pragma once

#include <functional>
#include <lockstep/checkpoint.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::store {

/// The number at `attribute` of the dict in data.json, or at that path of nested dicts, in any form that Python gives
/// it: int, float, numpy scalar, array or tensor of one element. `tensors` is called only for arrays and tensors.
/// Returns nothing if there is no such number. Throws StorageError if `data` is not JSON.
std::optional<double> score_in(std::string_view data, const std::string& attribute,
                               const std::function<std::vector<Tensor>()>& tensors);

/// The same for a checkpoint; nothing if it was not made from a dict. Throws StorageError if it cannot be read.
std::optional<double> score_of(const Checkpoint& checkpoint, const std::string& attribute);

/// The same; if there is none, the number at `attribute` in the metrics that were reported with the checkpoint.
std::optional<double> score_of(const Checkpoint& checkpoint, const Value& metrics, const std::string& attribute);

}  // namespace lockstep::store
