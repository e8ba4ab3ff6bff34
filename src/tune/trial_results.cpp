#include "tune/trial_results.h"

#include <lockstep/error.h>

#include "base/json.h"
#include "base/text.h"
#include "tune/trial_book.h"

namespace lockstep::tune {

Trial trial_of(const TrialRow& row) {
  Trial trial;
  trial.number = row.number;
  trial.id = row.id;
  trial.name = row.name;
  trial.state = trial_state_of(row.state);
  trial.config = parse_json(row.config, "trials.config");
  if (!row.last_result.empty()) trial.last_result = parse_json(row.last_result, "trials.last_result");
  trial.iterations = row.iterations;
  trial.failures = row.failures;
  trial.error = row.error;
  trial.checkpoint = row.checkpoint;
  trial.started = row.started;
  trial.ended = row.ended;
  return trial;
}

void list_keys(const Value& metrics, const std::string& prefix, std::vector<std::string>& into) {
  for (const auto& [key, value] : metrics.items()) {
    if (value.is_object() && !value.empty())
      list_keys(value, prefix + key + "/", into);
    else
      into.push_back(prefix + key);
  }
}

void check_is_reported(const Experiment& experiment, const std::string& metric) {
  std::vector<std::string> keys;
  for (TrialNumber number = 0; number < experiment.size(); ++number) {
    const Trial trial = experiment.trial(number);
    if (trial.last_result.empty()) continue;
    if (number_at(trial.last_result, metric)) return;
    if (keys.empty()) list_keys(trial.last_result, "", keys);
  }
  if (!keys.empty())
    throw ConfigError("[tune] no trial has reported a number " + in_quotes(metric) + "; there are " +
                      joined(keys, ", "));
}

}  // namespace lockstep::tune
