#include "tune/scheduler_options.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>

namespace lockstep::tune {
namespace {

const Value kNoOption;

std::string joined_names(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

Options::Options(const Value& description, std::string_view what, std::vector<std::string> known)
    : description_(description), kind_(what) {
  if (!description.is_object())
    throw ConfigError("[tune] the description of " + kind_ + " is " + description.dump() + "; it must be a dict");
  for (const auto& [name, value] : description.items())
    if (name != "kind" && std::ranges::find(known, name) == known.end())
      throw ConfigError("[tune] " + kind_ + " has no option '" + name + "'; " +
                        (known.empty() ? "it has none" : "its options are " + joined_names(known)));
}

bool Options::has(const std::string& name) const { return !value(name).is_null(); }

const Value& Options::value(const std::string& name) const {
  const auto at = description_.find(name);
  return at == description_.end() ? kNoOption : *at;
}

void Options::require(bool good, const std::string& name, std::string_view must) const {
  if (good) return;
  const Value& is = value(name);
  throw ConfigError("[tune] " + name + " of " + kind_ + " is " + (is.is_null() ? "missing" : is.dump()) +
                    "; it must be " + std::string(must));
}

double Options::number(const std::string& name, double otherwise) const {
  if (!has(name)) return otherwise;
  require(value(name).is_number() && std::isfinite(value(name).get<double>()), name, "a number");
  return value(name).get<double>();
}

std::int64_t Options::integer(const std::string& name, std::int64_t otherwise) const {
  const double wanted = number(name, static_cast<double>(otherwise));
  require(wanted == std::floor(wanted) && std::abs(wanted) < 1e15, name, "a whole number");
  return static_cast<std::int64_t>(wanted);
}

bool Options::flag(const std::string& name, bool otherwise) const {
  if (!has(name)) return otherwise;
  require(value(name).is_boolean(), name, "true or false");
  return value(name).get<bool>();
}

std::string Options::text(const std::string& name, const std::string& otherwise) const {
  if (!has(name)) return otherwise;
  require(value(name).is_string(), name, "a text");
  return value(name).get<std::string>();
}

}  // namespace lockstep::tune
