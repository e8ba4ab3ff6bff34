#pragma once

#include <lockstep/value.h>

#include <string>
#include <string_view>

namespace lockstep::metrics {

template <class Visit>
void for_each_leaf(const Value& object, std::string& prefix, Visit&& visit);

/// Calls visit(path, leaf) for `value`, found at `key`, or, if it is a dict, for every leaf in it that is not a dict,
/// in order. `path` is the keys joined by `/`, valid during the call. Empty dicts are skipped. `prefix` is scratch
/// space: the path of the enclosing dict with a trailing `/`; empty at the top.
template <class Visit>
void for_each_leaf_at(const std::string& key, const Value& value, std::string& prefix, Visit&& visit) {
  if (prefix.empty() && !value.is_object()) return visit(std::string_view(key), value);
  const std::size_t length = prefix.size();
  prefix += key;
  if (value.is_object()) {
    prefix += '/';
    for_each_leaf(value, prefix, visit);
  } else {
    visit(std::string_view(prefix), value);
  }
  prefix.resize(length);
}

/// The same for every entry of the dict `object`.
template <class Visit>
void for_each_leaf(const Value& object, std::string& prefix, Visit&& visit) {
  for (const auto& [key, value] : object.get_ref<const Value::object_t&>()) for_each_leaf_at(key, value, prefix, visit);
}

/// The key of the run's configuration, which every result repeats.
inline constexpr std::string_view kConfigKey = "config";

}  // namespace lockstep::metrics
