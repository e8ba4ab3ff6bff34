#include <lockstep/early_stopping.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& may_be) {
  throw ConfigError("[EarlyStopping] " + option + " is " + value + "; it must be " + may_be);
}

}  // namespace

EarlyStopping::EarlyStopping(Options options) : options_(std::move(options)) {
  if (options_.metric.empty()) refuse("metric", "empty", "the name of a metric that rank 0 reports");
  if (options_.patience < 0) refuse("patience", std::to_string(options_.patience), "0 or more");
  if (options_.mode != "min" && options_.mode != "max") refuse("mode", in_quotes(options_.mode), "\"min\" or \"max\"");
  if (!(options_.min_delta >= 0)) refuse("min_delta", std::to_string(options_.min_delta), "0 or more");
}

void EarlyStopping::reset() {
  best_.reset();
  waited_ = 0;
  warned_ = false;
}

bool EarlyStopping::should_stop(const Value& metrics) {
  const auto value = number_at(metrics, options_.metric);
  if (!value) {
    if (!std::exchange(warned_, true))
      log_warning("[EarlyStopping] there is no number " + in_quotes(options_.metric) +
                  " in the report; the run does not end early as long as none is reported");
    return false;
  }
  const double gain = best_ ? (options_.mode == "min" ? *best_ - *value : *value - *best_) : 0;
  if (*value == *value && (!best_ || gain > options_.min_delta)) {
    best_ = value;
    waited_ = 0;
    return false;
  }
  return ++waited_ >= options_.patience;
}

}  // namespace lockstep
