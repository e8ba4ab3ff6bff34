#include "tune/stored_result.h"

#include <algorithm>

namespace lockstep::tune {
namespace {

constexpr std::string_view kNotStored[] = {"config",
                                           "pid",
                                           "hostname",
                                           "node_ip",
                                           "trial_id",
                                           "experiment_id",
                                           "experiment_tag",
                                           "episodes_total",
                                           "timesteps_total",
                                           "date",
                                           "timesteps_since_restore",
                                           "warmup_time",
                                           "_timestamp",
                                           "_time_this_iter_s",
                                           "_training_iteration",
                                           "time_since_restore",
                                           "iterations_since_restore"};

}  // namespace

std::span<const std::string_view> keys_not_stored() { return kNotStored; }

Value stored_result(const Value& result) {
  Value stored = Value::object();
  for (const auto& [key, value] : result.items())
    if (std::ranges::find(kNotStored, key) == std::end(kNotStored)) stored[key] = value;
  return stored;
}

}  // namespace lockstep::tune
