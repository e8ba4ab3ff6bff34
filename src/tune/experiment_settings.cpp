#include "tune/experiment_settings.h"

#include <lockstep/error.h>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::tune {
namespace {

[[noreturn]] void refuse_setting(const std::string& setting, const std::string& value, const std::string& may_be) {
  throw ConfigError("[tune] " + setting + " is " + value + "; it must be " + may_be);
}

bool is_kind(const Value& description, const char* kind) {
  return description.is_object() && description.contains("kind") && description.at("kind") == kind;
}

}  // namespace

void validate(const ExperimentSettings& settings) {
  if (settings.num_samples < -1 || settings.num_samples == 0)
    refuse_setting("num_samples", std::to_string(settings.num_samples), "1 or more, or -1 for no limit");
  if (settings.modes.size() != settings.metrics.size())
    refuse_setting(
        "mode",
        std::to_string(settings.modes.size()) + " words for " + std::to_string(settings.metrics.size()) + " metrics",
        "one word per metric");
  for (const std::string& mode : settings.modes)
    if (mode != "min" && mode != "max") refuse_setting("mode", in_quotes(mode), R"("min" or "max")");
  for (const std::string& metric : settings.metrics)
    if (metric.empty()) refuse_setting("metric", "empty", "the name of a metric that trials report");
  if (settings.max_failures < -1)
    refuse_setting("max_failures", std::to_string(settings.max_failures), "0 or more, or -1 for no limit");
  if (settings.time_budget && !(*settings.time_budget > 0))
    refuse_setting("time_budget", std::to_string(*settings.time_budget), "more than 0 seconds");
  if (!settings.points_to_evaluate.is_array())
    refuse_setting("points_to_evaluate", to_json(settings.points_to_evaluate), "a list of configurations");
  if (!settings.stop.is_object()) refuse_setting("stop", to_json(settings.stop), "a dict of metrics and numbers");
  for (const auto& [key, value] : settings.stop.items())
    if (!number_of(value)) refuse_setting("stop[" + in_quotes(key) + "]", to_json(value), "a number");
  if (settings.metrics.empty()) {
    if (!is_kind(settings.scheduler, "fifo") && !is_kind(settings.scheduler, "custom"))
      refuse_setting("metric", "missing", "given, because the scheduler compares trials");
    if (!is_kind(settings.searcher, "random") && !is_kind(settings.searcher, "grid") &&
        !is_kind(settings.searcher, "sobol") && !is_kind(settings.searcher, "custom") &&
        !is_kind(settings.searcher, "limit") && !is_kind(settings.searcher, "repeat"))
      refuse_setting("metric", "missing", "given, because the searcher learns from it");
  }
}

std::string kind_of_scheduler(const ExperimentSettings& settings) {
  const Value& scheduler = settings.scheduler;
  const Value kind = scheduler.contains("of") ? scheduler.at("of") : scheduler.value("kind", Value());
  return kind.is_string() ? kind.get<std::string>() : "";
}

std::map<std::string, std::string> to_rows(const ExperimentSettings& settings) {
  return {{"name", to_json(settings.name)},
          {"param_space", to_json(settings.param_space)},
          {"num_samples", to_json(settings.num_samples)},
          {"metrics", to_json(settings.metrics)},
          {"modes", to_json(settings.modes)},
          {"seed", to_json(settings.seed)},
          {"searcher", to_json(settings.searcher)},
          {"scheduler", to_json(settings.scheduler)},
          {"points_to_evaluate", to_json(settings.points_to_evaluate)},
          {"time_attribute", to_json(settings.time_attribute)},
          {"stop", to_json(settings.stop)},
          {"time_budget", to_json(settings.time_budget ? Value(*settings.time_budget) : Value())},
          {"max_failures", to_json(settings.max_failures)},
          {"fail_fast", to_json(settings.fail_fast)},
          {"extra", to_json(settings.extra)}};
}

ExperimentSettings settings_of(const std::map<std::string, std::string>& rows) {
  const auto read = [&](const char* key) {
    const auto found = rows.find(key);
    if (found == rows.end())
      throw StorageError("[tune] table experiment has no row " + in_quotes(key) +
                         "; the file is not whole; restore it from a copy");
    return parse_json(found->second, key);
  };
  return read_as_written("table experiment", [&] {
    ExperimentSettings settings;
    settings.name = read("name");
    settings.param_space = read("param_space");
    settings.num_samples = read("num_samples");
    settings.metrics = read("metrics").get<std::vector<std::string>>();
    settings.modes = read("modes").get<std::vector<std::string>>();
    settings.seed = read("seed");
    settings.searcher = read("searcher");
    settings.scheduler = read("scheduler");
    settings.points_to_evaluate = read("points_to_evaluate");
    settings.time_attribute = read("time_attribute");
    settings.stop = read("stop");
    if (const Value budget = read("time_budget"); !budget.is_null()) settings.time_budget = budget.get<double>();
    settings.max_failures = read("max_failures");
    settings.fail_fast = read("fail_fast");
    settings.extra = read("extra");
    return settings;
  });
}

}  // namespace lockstep::tune
