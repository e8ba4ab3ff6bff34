#include "tune/searcher.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

struct SearcherKind {
  const char* name;
  std::unique_ptr<PointSearcher> (*make)(SearcherOptions&, const SearcherSetup&);
  bool for_several_objectives;
};

constexpr SearcherKind kSearcherKinds[] = {
    {"random", make_random, true}, {"grid", make_grid, true},    {"sobol", make_sobol, true},
    {"tpe", make_tpe, false},      {"cmaes", make_cmaes, false}, {"gp", make_gp, false},
    {"nsga2", make_nsga2, true},   {"bohb", make_bohb, false},   {"limit", make_limit, true},
    {"repeat", make_repeat, true},
};

std::string searcher_names() {
  std::vector<std::string> names;
  for (const auto& kind : kSearcherKinds) names.emplace_back(kind.name);
  return joined(names, ", ");
}

}  // namespace

SearcherOptions::SearcherOptions(const Value& description) : description_(description) {
  if (!description.is_object() || !description.contains("kind") || !description.at("kind").is_string()) {
    throw ConfigError("[tune.search] a searcher is described by " + to_json(description) +
                      "; it must be a dict with a kind: " + searcher_names());
  }
  kind_ = description.at("kind").get<std::string>();
  known_.emplace_back("kind");
}

const Value* SearcherOptions::find(const char* name) {
  known_.emplace_back(name);
  const auto found = description_.find(name);
  return found == description_.end() || found->is_null() ? nullptr : &*found;
}

void SearcherOptions::refuse(const char* name, const std::string& wanted) const {
  const auto found = description_.find(name);
  const std::string is = found == description_.end() ? "is missing" : "is " + to_json(*found);
  throw ConfigError("[tune.search] " + kind_ + ": " + name + " " + is + "; it must be " + wanted);
}

std::int64_t SearcherOptions::integer(const char* name, std::int64_t otherwise, std::int64_t lowest,
                                      std::int64_t highest) {
  const Value* value = find(name);
  if (!value && otherwise >= lowest) return otherwise;
  const bool fits = value && value->is_number_integer() && value->get<double>() >= double(lowest) &&
                    value->get<double>() <= double(highest);
  if (!fits) refuse(name, "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  return value->get<std::int64_t>();
}

double SearcherOptions::number(const char* name, double otherwise, double lowest, double highest) {
  const Value* value = find(name);
  if (!value) return otherwise;
  if (!value->is_number() || !(value->get<double>() >= lowest && value->get<double>() <= highest)) {
    refuse(name, "a number from " + to_json(Value(lowest)) + " to " + to_json(Value(highest)));
  }
  return value->get<double>();
}

bool SearcherOptions::flag(const char* name, bool otherwise) {
  const Value* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

Value SearcherOptions::searcher() {
  const Value* value = find("searcher");
  if (!value) refuse("searcher", "the description of another searcher");
  return *value;
}

void SearcherOptions::check_all_known() const {
  for (const auto& [key, value] : description_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      throw ConfigError("[tune.search] " + kind_ + " has no option " + in_quotes(key) + "; it has " +
                        joined(closest_first({known_.begin() + 1, known_.end()}, key), ", "));
    }
  }
}

double value_or_worst(const std::vector<double>& values) {
  return values.empty() || std::isnan(values[0]) ? std::numeric_limits<double>::infinity() : values[0];
}

std::unique_ptr<PointSearcher> make_searcher(const Value& description, const Space& space, std::uint64_t seed,
                                             int objectives, std::shared_ptr<PointSearcher> own) {
  SearcherOptions options(description);
  if (own && options.kind() == "own") return make_own(options, {space, seed, objectives, std::move(own)});
  const auto found = std::find_if(std::begin(kSearcherKinds), std::end(kSearcherKinds),
                                  [&](const auto& kind) { return kind.name == options.kind(); });
  if (found == std::end(kSearcherKinds)) {
    throw ConfigError("[tune.search] there is no searcher " + in_quotes(options.kind()) + "; there are " +
                      searcher_names());
  }
  if (objectives > 1 && !found->for_several_objectives) {
    throw ConfigError("[tune.search] " + options.kind() + " searches for one metric, not " +
                      std::to_string(objectives) + "; use nsga2, or give one metric");
  }
  auto searcher = found->make(options, {space, seed, objectives, std::move(own)});
  options.check_all_known();
  return searcher;
}

}  // namespace lockstep::tune
