#include "tune/mutations.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tune/domain.h"

namespace lockstep::tune {
namespace {

std::string joined_path(const std::vector<std::string>& path) {
  std::string all;
  for (const std::string& key : path) all += (all.empty() ? "" : "/") + key;
  return all;
}

[[noreturn]] void refuse_mutation(const std::vector<std::string>& path, const Value& is, const std::string& must) {
  throw ConfigError("[tune] hyperparam_mutations of pbt has " + is.dump() + " for " + joined_path(path) +
                    "; it must be " + must);
}

/// Null if a key is missing.
Value* find_parameter(Value& config, const std::vector<std::string>& path) {
  Value* at = &config;
  for (const std::string& key : path) {
    if (!at->is_object()) return nullptr;
    const auto next = at->find(key);
    if (next == at->end()) return nullptr;
    at = &*next;
  }
  return at;
}

void set_parameter(Value& config, const std::vector<std::string>& path, Value value) {
  Value* at = &config;
  for (const std::string& key : path) {
    if (!at->is_object()) *at = Value::object();
    at = &(*at)[key];
  }
  *at = std::move(value);
}

/// A whole number moves by at least 1, else small ones would never change.
double whole_step(double old, double scaled) {
  const double whole = std::round(scaled);
  if (whole != old || scaled == old) return whole;
  return scaled > old ? old + 1 : old - 1;
}

Value scaled_in_domain(const Domain& domain, double old, double factor) {
  double value = old * factor;
  if (domain.quantum > 0)
    value = whole_step(std::round(old / domain.quantum), value / domain.quantum) * domain.quantum;
  else if (domain.kind == Domain::Kind::integer)
    value = whole_step(old, value);
  if (domain.kind != Domain::Kind::normal) value = std::clamp(value, domain.lower, domain.upper);
  if (domain.kind == Domain::Kind::integer) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

Mutations::Mutations(const Value& description, Settings settings) : settings_(std::move(settings)) {
  std::vector<std::string> path;
  if (!description.is_object() || description.empty())
    throw ConfigError("[tune] hyperparam_mutations of pbt is " +
                      (description.is_null() ? "missing" : description.dump()) +
                      "; it must be a dict with a domain or a list for at least one parameter");
  parse(description, path);
}

void Mutations::parse(const Value& description, std::vector<std::string>& path) {
  for (const auto& [key, value] : description.items()) {
    path.push_back(key);
    Parameter parameter{.path = path, .values = {}, .ordered = true, .space = std::nullopt};
    if (value.is_object() && value.contains("$domain")) {
      const Value& domain = value["$domain"];
      if (domain.is_object() && domain.contains("values")) {
        if (!domain["values"].is_array()) refuse_mutation(path, value, "a domain with a list of values");
        parameter.values.assign(domain["values"].begin(), domain["values"].end());
      } else {
        parameter.space = Space::parse(Value{{key, value}});
        if (parameter.space->dimensions().size() != 1)
          refuse_mutation(path, value, "a list, or a domain that can be drawn from");
      }
    } else if (value.is_object() && value.contains("$samples")) {
      const Value& samples = value["$samples"];
      if (!samples.is_array()) refuse_mutation(path, value, "a list of samples");
      parameter.values.assign(samples.begin(), samples.end());
      parameter.ordered = false;
    } else if (value.is_array()) {
      parameter.values.assign(value.begin(), value.end());
    } else if (value.is_object()) {
      parse(value, path);
      path.pop_back();
      continue;
    } else {
      refuse_mutation(path, value, "a list, a domain, or a dict of those");
    }
    if (!parameter.space && parameter.values.empty()) refuse_mutation(path, value, "a list that is not empty");
    parameters_.push_back(std::move(parameter));
    path.pop_back();
  }
}

Value Mutations::drawn(const Parameter& parameter, RandomNumbers& random) const {
  if (!parameter.space)
    return parameter.values[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(parameter.values.size())))];
  const Value drawn = parameter.space->config(random_point(*parameter.space, {}, random));
  return drawn[parameter.path.back()];
}

Value Mutations::changed(const Parameter& parameter, const Value& old, RandomNumbers& random) const {
  if (random.uniform() < settings_.resample_probability) return drawn(parameter, random);
  if (parameter.ordered && !parameter.space) {
    const auto at = std::ranges::find(parameter.values, old);
    if (at == parameter.values.end()) return drawn(parameter, random);
    const auto last = static_cast<std::int64_t>(parameter.values.size()) - 1;
    const std::int64_t next = at - parameter.values.begin() + (random.below(2) == 0 ? -1 : 1);
    return parameter.values[static_cast<std::size_t>(std::clamp<std::int64_t>(next, 0, last))];
  }
  const auto choice = random.below(static_cast<std::int64_t>(settings_.factors.size()));
  const double factor = settings_.factors[static_cast<std::size_t>(choice)];
  if (!old.is_number()) return drawn(parameter, random);
  if (parameter.space) return scaled_in_domain(parameter.space->dimensions()[0].domain, old.get<double>(), factor);
  if (old.is_number_integer())
    return static_cast<std::int64_t>(whole_step(old.get<double>(), old.get<double>() * factor));
  return old.get<double>() * factor;
}

Value Mutations::explored(Value config, RandomNumbers& random) const {
  for (const Parameter& parameter : parameters_) {
    const Value* old = find_parameter(config, parameter.path);
    Value value = old == nullptr ? drawn(parameter, random) : changed(parameter, *old, random);
    set_parameter(config, parameter.path, std::move(value));
  }
  return config;
}

Value Mutations::completed(Value config, RandomNumbers& random) const {
  for (const Parameter& parameter : parameters_)
    if (find_parameter(config, parameter.path) == nullptr)
      set_parameter(config, parameter.path, drawn(parameter, random));
  return config;
}

}  // namespace lockstep::tune
