#pragma once

#include <functional>
#include <lockstep/checkpoint.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::store {

/// The number at `attribute` of the dict in data.json, or at that path of nested dicts, in any form that Python gives
/// it: int, float, numpy scalar, array or tensor of one element. `tensors` is called only when it is one of the latter.
/// Nothing when there is no such number; throws StorageError when `data` is no JSON.
std::optional<double> score_in(std::string_view data, const std::string& attribute,
                               const std::function<std::vector<Tensor>()>& tensors);

/// The same of a checkpoint; nothing when it was not made from a dict. Throws StorageError as reading it does.
std::optional<double> score_of(const Checkpoint& checkpoint, const std::string& attribute);

}  // namespace lockstep::store
